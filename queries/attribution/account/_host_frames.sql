-- _host_frames: what the launching thread does while the GPU is idle and nothing is launched.
--
-- Inputs: _host_windows, cuda_api, nvtx, os_calls, thread_states, this_rank, run_config (data_pattern as variable)
-- Output:
--   ordinal   BIGINT   the step, by place in time
--   start_ns  BIGINT   start
--   end_ns    BIGINT   end
--   sync      BOOLEAN  inside a call that waits for the GPU, or a blocking copy (by the API's name)
--   data      BOOLEAN  inside a data-loading range, a read or a receive
--   other     BOOLEAN  inside another traced OS call, or off the CPU
-- Assumes: calls and ranges of one thread nest less than a million deep. One pass in order of (thread, time): all
--   sums are back at 0 where a thread's last interval ends, so no partition is needed. Endless ranges say nothing.
CREATE OR REPLACE TEMP TABLE _host_frames AS
WITH host_window AS (
    SELECT tid, ordinal, start_ns, cut_ns FROM _host_windows WHERE cut_ns > start_ns AND tid IS NOT NULL
),
asked AS (
    SELECT DISTINCT tid FROM host_window
),
sync_name AS (
    SELECT name
    FROM (SELECT DISTINCT name FROM cuda_api)
    WHERE regexp_matches(name, 'Synchronize')
        OR regexp_matches(name, '^(cuda|cu)(Free|MemFree)(_|$)')
        OR (regexp_matches(name, '^(cuda|cu)Memcpy') AND NOT regexp_matches(name, 'Async|Batch|NodeParams'))
),
os_name AS (
    SELECT name, regexp_matches(name, '^_*(f?read|pread|readv|preadv|recv|fgets|fgetc|getline|getdelim|io_getevents)') AS data
    FROM (SELECT DISTINCT name FROM os_calls)
),
busy AS (
    SELECT tid, start_ns, end_ns, 1::BIGINT AS code
    FROM cuda_api
    SEMI JOIN sync_name USING (name)
    UNION ALL
    SELECT tid, start_ns, end_ns, 1::BIGINT << 20
    FROM nvtx
    WHERE kind IN ('push_pop', 'start_end') AND regexp_matches(text, getvariable('data_pattern'), 'i')
    UNION ALL
    SELECT o.tid, o.start_ns, o.end_ns, CASE WHEN n.data THEN 1::BIGINT << 20 ELSE 1::BIGINT << 40 END
    FROM os_calls AS o
    JOIN os_name AS n USING (name)
    UNION ALL
    SELECT t.tid, t.start_ns, t.end_ns, 1::BIGINT << 40
    FROM thread_states AS t
    CROSS JOIN this_rank AS r
    WHERE t.state IN ('runnable', 'blocked') AND (t.pid IS NULL OR t.pid = r.pid)
),
of_asked AS (
    SELECT tid, start_ns, end_ns, code FROM busy SEMI JOIN asked USING (tid) WHERE end_ns > start_ns
),
endpoint AS (
    SELECT tid, start_ns AS at_ns, code AS delta, NULL::BIGINT AS ordinal FROM of_asked
    UNION ALL
    SELECT tid, end_ns, -code, NULL FROM of_asked
    UNION ALL
    SELECT tid, start_ns, 1::BIGINT << 60, ordinal FROM host_window
    UNION ALL
    SELECT tid, cut_ns, -(1::BIGINT << 60), NULL FROM host_window
),
swept AS (
    SELECT
        at_ns AS start_ns,
        lead(at_ns) OVER () AS end_ns,
        sum(delta) OVER (ROWS UNBOUNDED PRECEDING)::BIGINT AS state,
        last_value(ordinal IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS ordinal
    FROM (FROM endpoint ORDER BY tid, at_ns)
)
SELECT
    ordinal,
    start_ns,
    end_ns,
    state & 1048575 > 0 AS sync,
    (state >> 20) & 1048575 > 0 AS data,
    (state >> 40) & 1048575 > 0 AS other
FROM swept
WHERE state >> 60 > 0 AND end_ns > start_ns;
