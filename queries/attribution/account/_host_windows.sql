-- _host_windows: idle time of the GPU before its next operation was launched, and the thread to ask.
--
-- Inputs: _gpu_periods, _lost_idle, _last_launch
-- Output:
--   start_ns  BIGINT   the GPU is idle from here
--   cut_ns    BIGINT   until here the next operation is not launched: its launch call starts here
--   end_ns    BIGINT   the GPU is idle until here
--   tid       BIGINT   thread that launches next; after the capture's last operation the one that launched last;
--                      NULL: unknown
--   lost      BOOLEAN  GPU events were lost here: then it may not have been idle
CREATE OR REPLACE TEMP VIEW _host_windows AS
WITH idle AS (
    SELECT idle_ns AS start_ns, start_ns AS end_ns, launch_ns, launch_tid, false AS lost
    FROM _gpu_periods
    ANTI JOIN _lost_idle USING (idle_ns)
    WHERE start_ns > idle_ns
    UNION ALL
    SELECT start_ns, end_ns, launch_ns, launch_tid, lost FROM _lost_idle
)
SELECT
    i.start_ns,
    CASE
        WHEN i.launch_ns IS NULL OR i.launch_ns = 9223372036854775807 THEN i.end_ns
        ELSE greatest(i.start_ns, least(i.launch_ns, i.end_ns))
    END AS cut_ns,
    i.end_ns,
    CASE
        WHEN i.launch_ns IS NULL THEN l.tid
        WHEN i.launch_ns = 9223372036854775807 OR i.launch_tid = -1 THEN NULL
        ELSE i.launch_tid
    END AS tid,
    i.lost
FROM idle AS i
CROSS JOIN _last_launch AS l;
