-- nsys_comm_op: rows of comm_ops, from NCCL's NVTX ranges and the kernels that they launched.
--
-- Inputs: nsys_comm_call, nsys_comm_group, nsys_comm_kernel, nsys_rank
-- Output: the columns of comm_ops
-- Assumes: a collective is a row, the sends and receives of a group are one row. start is the call's start, end the
--   last kernel's end (the call's where no kernel was seen), arrival the first kernel's start. A sequence number is
--   given only where the communicator's creation was captured: otherwise the first operation's number is not known.
CREATE OR REPLACE TEMP VIEW nsys_comm_op AS
WITH kernels AS (
    SELECT process, comm_tid, comm_group, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM nsys_comm_kernel
    GROUP BY process, comm_tid, comm_group
),
communicators AS (
    SELECT process, comm_id, max(n_ranks) AS n_ranks, bool_or(init) AS created
    FROM nsys_comm_call
    WHERE comm_id IS NOT NULL
    GROUP BY process, comm_id
),
operations AS (
    SELECT process, tid, group_id, op, bytes, comm_id, peer_rank, start_ns, end_ns
    FROM nsys_comm_group
    WHERE p2p
    UNION ALL
    SELECT c.process, c.tid, c.group_id, c.op, c.bytes, c.comm_id, NULL, c.start_ns, c.end_ns
    FROM nsys_comm_call AS c
    JOIN nsys_comm_group AS g USING (process, tid, group_id)
    WHERE NOT g.p2p AND c.op IS NOT NULL
)
SELECT
    r.rank,
    o.comm_id,
    CASE
        WHEN o.comm_id IS NOT NULL AND m.created
        THEN row_number() OVER (
            PARTITION BY o.process, o.comm_id ORDER BY o.start_ns, o.end_ns DESC, o.tid, o.op
        ) - 1
    END AS seq,
    o.op,
    o.bytes,
    m.n_ranks,
    nsys_at(o.start_ns) AS start_ns,
    coalesce(k.end_ns, nsys_at(o.end_ns)) AS end_ns,
    k.start_ns AS arrival_ns,
    'nvtx' AS source,
    o.peer_rank
FROM operations AS o
LEFT JOIN kernels AS k ON k.process = o.process AND k.comm_tid = o.tid AND k.comm_group = o.group_id
LEFT JOIN communicators AS m ON m.process = o.process AND m.comm_id = o.comm_id
LEFT JOIN nsys_rank AS r ON r.process = o.process;
