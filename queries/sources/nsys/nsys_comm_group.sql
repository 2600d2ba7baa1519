-- nsys_comm_group: groups of NCCL calls that start an operation, and what their kernels run.
--
-- Inputs: nsys_comm_call
-- Output:
--   process, tid, group_id BIGINT
--   start_ns, end_ns BIGINT  the thread is inside the group's calls; launches of its kernels lie here
--   op          VARCHAR  what a kernel of the group runs: the one operation, SendRecv for sends with receives,
--                        'unknown' for a mixture
--   bytes       BIGINT   of that operation; of all sends (else receives) for point-to-point; NULL where not known
--   comm_id     VARCHAR  communicator; NULL: not known, or several
--   peer_rank   BIGINT   the one peer of a point-to-point group
--   p2p         BOOLEAN  sends and receives only
--   n_ops       BIGINT   operations
-- Assumes: NCCL launches the kernels of a group inside its outermost ncclGroupEnd, of a lone call inside the call
CREATE OR REPLACE TEMP TABLE nsys_comm_group AS
SELECT
    process,
    tid,
    group_id,
    min(start_ns) AS start_ns,
    max(end_ns) AS end_ns,
    CASE
        WHEN count(DISTINCT op) = 1 THEN min(op)
        WHEN bool_and(op IS NULL OR op IN ('Send', 'Recv')) THEN 'SendRecv'
        ELSE 'unknown'
    END AS op,
    CASE
        WHEN bool_and(op IS NULL OR op IN ('Send', 'Recv'))
        THEN coalesce(sum(bytes) FILTER (op = 'Send'), sum(bytes) FILTER (op = 'Recv'))::BIGINT
        WHEN count(op) = 1 THEN max(bytes) FILTER (op IS NOT NULL)
    END AS bytes,
    CASE WHEN count(DISTINCT comm_id) FILTER (op IS NOT NULL) = 1 THEN min(comm_id) FILTER (op IS NOT NULL) END
        AS comm_id,
    CASE
        WHEN count(DISTINCT peer_rank) FILTER (op IS NOT NULL) = 1 THEN min(peer_rank) FILTER (op IS NOT NULL)
    END AS peer_rank,
    bool_and(op IS NULL OR op IN ('Send', 'Recv')) AS p2p,
    count(op) AS n_ops
FROM nsys_comm_call
GROUP BY process, tid, group_id
HAVING count(op) > 0;
