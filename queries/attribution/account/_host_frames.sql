-- _host_frames: what the launching thread does while the GPU is idle and nothing is launched.
--
-- Inputs: _touched_windows, _host_calls
-- Output:
--   start_ns  BIGINT   start
--   end_ns    BIGINT   end; frames tile the windows
--   sync      BOOLEAN  inside a call that waits for the GPU, or a blocking copy
--   data      BOOLEAN  inside a data-loading range, a read or a receive
--   other     BOOLEAN  inside another traced OS call, or off the CPU
-- Assumes: calls and ranges of one thread nest less than a million deep. One pass in order of (thread, time): all
--   sums are back at 0 where a thread's last interval ends, so no partition is needed.
CREATE OR REPLACE TEMP TABLE _host_frames AS
WITH endpoint AS (
    SELECT tid, start_ns AS at_ns, code AS delta FROM _host_calls
    UNION ALL
    SELECT tid, end_ns, -code FROM _host_calls
    UNION ALL
    SELECT tid, start_ns, 1::BIGINT << 60 FROM _touched_windows
    UNION ALL
    SELECT tid, cut_ns, -(1::BIGINT << 60) FROM _touched_windows
),
swept AS (
    SELECT
        at_ns AS start_ns,
        lead(at_ns) OVER () AS end_ns,
        sum(delta) OVER (ROWS UNBOUNDED PRECEDING)::BIGINT AS state
    FROM (FROM endpoint ORDER BY tid, at_ns)
)
SELECT
    start_ns,
    end_ns,
    state & 1048575 > 0 AS sync,
    (state >> 20) & 1048575 > 0 AS data,
    (state >> 40) & 1048575 > 0 AS other
FROM swept
WHERE state >> 60 > 0 AND end_ns > start_ns;
