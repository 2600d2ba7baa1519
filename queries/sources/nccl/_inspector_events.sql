-- _inspector_events: collectives of NCCL Inspector, from JSON text.
--
-- Inputs: json_lines(line, text)
-- Output:
--   line        BIGINT   order in the file
--   text        VARCHAR  the object
--   good        BOOLEAN  it is JSON with a collective
--   pid         BIGINT   process
--   comm_id     VARCHAR  communicator, as it is written
--   comm_rank, n_ranks   BIGINT  rank in the communicator, and its size
--   seq         BIGINT   number of the operation in the communicator
--   op          VARCHAR  collective
--   bytes       BIGINT   message size
--   exec_ns     BIGINT   duration
--   start_ns, end_ns     BIGINT  ns since the UTC epoch, from the channels' kernels; NULL without the event trace
CREATE OR REPLACE TEMP TABLE _inspector_events AS
WITH parsed AS (
    SELECT line, text, CASE WHEN json_valid(text) THEN text::JSON END AS j FROM json_lines
),

fields AS (
    SELECT
        line, text, j,
        try_cast(j ->> '$.metadata.pid' AS BIGINT) AS pid,
        j ->> '$.header.id' AS comm_id,
        try_cast(j ->> '$.header.rank' AS BIGINT) AS comm_rank,
        try_cast(j ->> '$.header.n_ranks' AS BIGINT) AS n_ranks,
        try_cast(j ->> '$.coll_perf.coll_sn' AS BIGINT) AS seq,
        j ->> '$.coll_perf.coll' AS op,
        try_cast(j ->> '$.coll_perf.coll_msg_size_bytes' AS BIGINT) AS bytes,
        try_cast(j ->> '$.coll_perf.coll_exec_time_us' AS BIGINT) * 1000 AS exec_ns,
        try_cast(j ->> '$.coll_perf.event_trace_ts.kernel_events[*].kernel_start_ts' AS BIGINT[]) AS starts_us,
        try_cast(j ->> '$.coll_perf.event_trace_ts.kernel_events[*].kernel_stop_ts' AS BIGINT[]) AS stops_us
    FROM parsed
)

SELECT
    line,
    text,
    coalesce(op IS NOT NULL AND comm_id IS NOT NULL, false) AS good,
    pid,
    comm_id,
    comm_rank,
    n_ranks,
    seq,
    op,
    bytes,
    exec_ns,
    nullif(list_min(starts_us), 0) * 1000 AS start_ns,
    nullif(list_max(stops_us), 0) * 1000 AS end_ns
FROM fields;
