-- nsys_comm_launch: API calls made inside a group of NCCL calls.
--
-- Inputs: nsys_api_call, nsys_comm_group
-- Output:
--   process, correlation_id BIGINT
--   tid, group_id BIGINT  the group
--   op          VARCHAR  what a communication kernel launched by it runs
--   bytes       BIGINT   of that operation
-- Assumes: groups of a thread are disjoint
CREATE OR REPLACE TEMP TABLE nsys_comm_launch AS
SELECT c.process, c.correlation_id, min(g.tid) AS tid, min(g.group_id) AS group_id, min(g.op) AS op, min(g.bytes) AS bytes
FROM (
    SELECT process, tid, start_ns, correlation_id
    FROM nsys_api_call
    WHERE correlation_id <> 0 AND (process, tid) IN (SELECT (process, tid) FROM nsys_comm_group)
) AS c
ASOF JOIN nsys_comm_group AS g ON g.process = c.process AND g.tid = c.tid AND c.start_ns >= g.start_ns
WHERE c.start_ns < g.end_ns
GROUP BY c.process, c.correlation_id;
