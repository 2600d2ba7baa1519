-- _host_windows: idle time of the GPU before its next operation was launched, and the thread to ask.
--
-- Inputs: _gpu_frames, gpu_ops
-- Output:
--   ordinal   BIGINT  the step, by place in time
--   start_ns  BIGINT  the GPU is idle from here
--   cut_ns    BIGINT  until here the next operation is not launched: its launch call starts here
--   end_ns    BIGINT  the GPU is idle until here
--   tid       BIGINT  thread that launches next; after the capture's last operation the one that launched last;
--                     NULL: unknown
CREATE OR REPLACE TEMP TABLE _host_windows AS
SELECT
    f.ordinal,
    f.start_ns,
    CASE
        WHEN f.launch_ns IS NULL OR f.launch_ns = 9223372036854775807 THEN f.end_ns
        ELSE greatest(f.start_ns, least(f.launch_ns, f.end_ns))
    END AS cut_ns,
    f.end_ns,
    CASE
        WHEN f.launch_ns IS NULL THEN l.tid
        WHEN f.launch_ns = 9223372036854775807 OR f.launch_tid = -1 THEN NULL
        ELSE f.launch_tid
    END AS tid
FROM _gpu_frames AS f
CROSS JOIN (
    SELECT max(launch_tid) AS tid
    FROM gpu_ops
    WHERE launch_start_ns = (SELECT max(launch_start_ns) FROM gpu_ops WHERE launch_tid IS NOT NULL)
) AS l
WHERE NOT (f.compute OR f.comm OR f.copy OR f.gpu_loss);
