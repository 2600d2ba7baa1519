-- _touched_windows: idle times of the GPU before a launch in which its thread did something that was recorded.
--
-- Inputs: _host_windows, _host_calls
-- Output:
--   tid       BIGINT  thread that launches next
--   start_ns  BIGINT  the GPU is idle from here
--   cut_ns    BIGINT  the launch call starts here
CREATE OR REPLACE TEMP TABLE _touched_windows AS
WITH reach AS (
    -- The last call to start before an instant stands for all before it, those that start with it included: how far the
    -- furthest of them reaches.
    SELECT tid, start_ns, max(end_ns) OVER (PARTITION BY tid ORDER BY start_ns RANGE UNBOUNDED PRECEDING) AS end_ns
    FROM _host_calls
)
SELECT w.tid, w.start_ns, w.cut_ns
FROM (FROM _host_windows WHERE NOT lost AND cut_ns > start_ns AND tid IS NOT NULL) AS w
ASOF JOIN reach AS r ON w.tid = r.tid AND w.cut_ns > r.start_ns
WHERE r.end_ns > w.start_ns;
