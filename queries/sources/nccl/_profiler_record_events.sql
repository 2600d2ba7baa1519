-- _profiler_record_events: collectives and sends of a plugin that writes one record an event, from JSON text.
--
-- Inputs: json_lines(line, text)
-- Output:
--   line        BIGINT   order in the file
--   text        VARCHAR  the object
--   good        BOOLEAN  it is JSON
--   type        VARCHAR  kind of event
--   pid         BIGINT   process that recorded its start
--   comm_id     VARCHAR  communicator, unsigned 64 bits, as text
--   comm_rank, n_ranks, seq, count, peer   BIGINT
--   op, datatype         VARCHAR
--   start_ns, end_ns     BIGINT  time on the plugin's clock; NULL for 0
-- Assumes: µs are read as decimals from the text: a double, also the JSON reader's, would round ns away.
CREATE OR REPLACE TEMP TABLE _profiler_record_events AS
WITH parsed AS (
    SELECT line, text, CASE WHEN json_valid(text) THEN text::JSON END AS j FROM json_lines
)

SELECT
    line,
    text,
    j IS NOT NULL AS good,
    j ->> '$.type' AS type,
    try_cast(j ->> '$.start.pid' AS BIGINT) AS pid,
    j ->> '$.commId' AS comm_id,
    try_cast(j ->> '$.rank' AS BIGINT) AS comm_rank,
    try_cast(j ->> '$.details.nranks' AS BIGINT) AS n_ranks,
    try_cast(j ->> '$.details.seq' AS BIGINT) AS seq,
    try_cast(j ->> '$.details.count' AS BIGINT) AS count,
    try_cast(j ->> '$.details.peer' AS BIGINT) AS peer,
    j ->> '$.details.func' AS op,
    coalesce(j ->> '$.details.dtype', j ->> '$.details.datatype') AS datatype,
    nullif((try_cast(regexp_extract(text, '"start":\s*\{\s*"ts":\s*"?([0-9.]+)', 1) AS DECIMAL(25, 6)) * 1000)::BIGINT, 0) AS start_ns,
    nullif((try_cast(regexp_extract(text, '"stop":\s*\{\s*"ts":\s*"?([0-9.]+)', 1) AS DECIMAL(25, 6)) * 1000)::BIGINT, 0) AS end_ns
FROM parsed;
