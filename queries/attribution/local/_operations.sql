-- _operations: a rank's communication kernels as operations, with what other sources say of them.
--
-- Inputs: gpu_ops, comm_ops
-- Output:
--   rank         BIGINT   rank
--   op_id        BIGINT   counts the operations of the rank from 0, by (start_ns, end_ns, stream)
--   comm_id      VARCHAR  communicator; NULL where no source gives it
--   seq          BIGINT   sequence number in the communicator; NULL where no source gives it
--   op           VARCHAR  AllReduce, AllToAll, SendRecv and alike; 'unknown' where nothing says
--   bytes        BIGINT   message size, bytes; NULL where unknown
--   n_ranks      BIGINT   size of the communicator; NULL where unknown
--   peer_rank    BIGINT   point-to-point: the peer; NULL for collectives
--   start_ns     BIGINT   arrival: the kernel starts
--   end_ns       BIGINT   the kernel ends
--   device       BIGINT   device index
--   stream       BIGINT   CUDA stream
--   kernel       VARCHAR  kernel name
-- Assumes: any number of ranks. A row of comm_ops describes a kernel by the first rule that holds: its
--   arrival is the kernel's start; it is the innermost range that the kernel was launched in; the rank has
--   as many undescribed rows (of one source) as undescribed kernels, and the k-th of each overlap for all k;
--   of all that it overlapping, each is the other's longest. A library's call may run long before its kernel,
--   so the latest call before a kernel is no rule. Kernel names are a hint and never give `op`.
CREATE OR REPLACE TEMP TABLE _operations AS
WITH kernels AS (
    SELECT
        rank,
        row_number() OVER (
            PARTITION BY rank
            ORDER BY start_ns, end_ns, stream, device, context, name, correlation_id, graph_node_id
        ) - 1 AS op_id,
        coalesce(comm_op, 'unknown') AS op,
        bytes, start_ns, end_ns, device, stream, name AS kernel, launch_start_ns
    FROM gpu_ops
    WHERE op_class = 'comm' AND rank IS NOT NULL AND start_ns IS NOT NULL AND end_ns >= start_ns
),
described AS (
    SELECT
        row_number() OVER (
            ORDER BY rank, start_ns, end_ns, source, comm_id, seq, op, bytes, peer_rank, arrival_ns
        ) AS call_id,
        *
    FROM comm_ops
    WHERE rank IS NOT NULL
),
by_arrival AS (
    SELECT rank, op_id, min(call_id) AS call_id
    FROM (
        SELECT d.rank, d.call_id, min(k.op_id) AS op_id
        FROM described AS d JOIN kernels AS k ON k.rank = d.rank AND k.start_ns = d.arrival_ns
        GROUP BY ALL
    )
    GROUP BY ALL
),
by_launch AS (
    SELECT rank, op_id, arg_max(call_id, (start_ns, call_id)) AS call_id
    FROM (
        SELECT k.rank, k.op_id, d.call_id, d.start_ns
        FROM kernels AS k
        JOIN described AS d
            ON d.rank = k.rank AND d.start_ns <= k.launch_start_ns AND d.end_ns > k.launch_start_ns
        WHERE d.source = 'nvtx' AND d.arrival_ns IS NULL
    )
    WHERE (rank, op_id) NOT IN (SELECT (rank, op_id) FROM by_arrival)
    GROUP BY ALL
),
by_range AS (
    SELECT * FROM by_arrival UNION ALL SELECT * FROM by_launch
),
loose_kernels AS (
    SELECT
        rank, op_id, start_ns, end_ns,
        row_number() OVER (PARTITION BY rank ORDER BY op_id) AS k,
        count(*) OVER (PARTITION BY rank) AS n
    FROM kernels ANTI JOIN by_range USING (rank, op_id)
),
loose_calls AS (
    SELECT
        rank, call_id, source, start_ns, end_ns,
        row_number() OVER (PARTITION BY rank, source ORDER BY call_id) AS k,
        count(*) OVER (PARTITION BY rank, source) AS n
    FROM described
    WHERE source <> 'nvtx' AND arrival_ns IS NULL AND end_ns >= start_ns
        AND call_id NOT IN (SELECT call_id FROM by_range)
),
kth AS (
    SELECT c.rank, k.op_id, c.call_id, c.source,
        bool_and(c.start_ns <= k.end_ns AND k.start_ns <= c.end_ns) OVER (PARTITION BY c.rank, c.source) AS agree
    FROM loose_calls AS c JOIN loose_kernels AS k ON k.rank = c.rank AND k.k = c.k AND k.n = c.n
),
by_order AS (
    SELECT rank, op_id, arg_min(call_id, (source, call_id)) AS call_id FROM kth WHERE agree GROUP BY ALL
),
overlapping AS (
    SELECT c.rank, k.op_id, c.call_id,
        (least(c.end_ns, k.end_ns) - greatest(c.start_ns, k.start_ns), -c.call_id, -k.op_id) AS weight
    FROM loose_calls AS c
    JOIN loose_kernels AS k ON k.rank = c.rank AND c.start_ns < k.end_ns AND k.start_ns < c.end_ns
    WHERE (c.rank, k.op_id) NOT IN (SELECT (rank, op_id) FROM by_order)
        AND c.call_id NOT IN (SELECT call_id FROM by_order)
),
by_overlap AS (
    SELECT rank, op_id, call_id
    FROM overlapping
    QUALIFY row_number() OVER (PARTITION BY rank, op_id ORDER BY weight DESC) = 1
        AND row_number() OVER (PARTITION BY call_id ORDER BY weight DESC) = 1
),
matched AS (
    SELECT * FROM by_range UNION ALL SELECT * FROM by_order UNION ALL SELECT * FROM by_overlap
)
SELECT
    k.rank, k.op_id, d.comm_id, d.seq,
    coalesce(nullif(d.op, 'unknown'), k.op) AS op,
    coalesce(d.bytes, k.bytes) AS bytes,
    d.n_ranks, d.peer_rank, k.start_ns, k.end_ns, k.device, k.stream, k.kernel
FROM kernels AS k
LEFT JOIN matched AS m USING (rank, op_id)
LEFT JOIN described AS d ON d.call_id = m.call_id
ORDER BY k.rank, k.op_id;
