-- nsys_comm_launch: what the communication kernels of one window of GPU work run, by their launches.
--
-- Inputs: nsys_raw_kernel, nsys_string, nsys_launch, nsys_comm_group
-- Output:
--   process, correlation_id BIGINT  the launch
--   tid, group_id BIGINT  the group of NCCL calls around it
--   op          VARCHAR  what its kernels run
--   bytes       BIGINT   of that operation
-- Assumes: groups of a thread are disjoint. Groups are cut to the time of the window's launches first: a window would
--   otherwise sort all of the capture's.
CREATE OR REPLACE TEMP TABLE nsys_comm_launch AS
WITH launches AS MATERIALIZED (
    SELECT DISTINCT l.process, l.correlation_id, l.tid, l.start_ns
    FROM (
        SELECT
            correlationId AS correlation_id,
            coalesce(nsys_process(globalPid), getvariable('nsys_sole_process')::BIGINT) AS process
        FROM nsys_raw_kernel
        WHERE demangledName IN (SELECT id FROM nsys_string WHERE is_comm)
            OR shortName IN (SELECT id FROM nsys_string WHERE is_comm)
    ) AS k
    JOIN nsys_launch AS l USING (process, correlation_id)
)
SELECT k.process, k.correlation_id, g.tid, g.group_id, g.op, g.bytes
FROM launches AS k
ASOF JOIN (
    SELECT process, tid, group_id, op, bytes, start_ns, end_ns
    FROM nsys_comm_group
    WHERE start_ns <= (SELECT max(start_ns) FROM launches) AND end_ns > (SELECT min(start_ns) FROM launches)
) AS g ON g.process = k.process AND g.tid = k.tid AND k.start_ns >= g.start_ns
WHERE k.start_ns < g.end_ns;
