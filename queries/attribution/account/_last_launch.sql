-- _last_launch: the thread that launched last.
--
-- Inputs: gpu_ops
-- Output:
--   tid  BIGINT  thread; of several that launched at once the highest; NULL: no launch is known
CREATE OR REPLACE TEMP TABLE _last_launch AS
SELECT max(launch_tid) AS tid
FROM gpu_ops
WHERE launch_start_ns = (SELECT max(launch_start_ns) FROM gpu_ops WHERE launch_tid IS NOT NULL);
