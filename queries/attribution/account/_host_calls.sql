-- _host_calls: what the threads that launch were doing, by calls, ranges and switches of their own.
--
-- Inputs: _host_windows, _call_codes, cuda_api, nvtx, os_calls, thread_states, this_rank, run_config (data_pattern as
--   variable)
-- Output:
--   tid       BIGINT  thread that some idle time of the GPU asks for
--   start_ns  BIGINT  start
--   end_ns    BIGINT  end
--   code      BIGINT  1: inside a call that waits for the GPU, or a blocking copy; 1 << 20: inside a data-loading range, a
--                     read or a receive; 1 << 40: inside another traced OS call, or off the CPU
-- Assumes: endless ranges say nothing.
CREATE OR REPLACE TEMP TABLE _host_calls AS
WITH asked AS (
    SELECT DISTINCT tid
    FROM _host_windows
    WHERE NOT lost AND cut_ns > start_ns AND tid IS NOT NULL
),
busy AS (
    SELECT a.tid, a.start_ns, a.end_ns, c.code
    FROM cuda_api AS a
    JOIN _call_codes AS c ON a.name = c.name AND c.source = 'cuda_api'
    UNION ALL
    SELECT tid, start_ns, end_ns, 1::BIGINT << 20
    FROM nvtx
    WHERE kind IN ('push_pop', 'start_end') AND regexp_matches(text, getvariable('data_pattern'), 'i')
    UNION ALL
    SELECT o.tid, o.start_ns, o.end_ns, c.code
    FROM os_calls AS o
    JOIN _call_codes AS c ON o.name = c.name AND c.source = 'os_calls'
    UNION ALL
    SELECT t.tid, t.start_ns, t.end_ns, 1::BIGINT << 40
    FROM thread_states AS t
    CROSS JOIN this_rank AS r
    WHERE t.state IN ('runnable', 'blocked') AND (t.pid IS NULL OR t.pid = r.pid)
)
SELECT tid, start_ns, end_ns, code FROM busy SEMI JOIN asked USING (tid) WHERE end_ns > start_ns;
