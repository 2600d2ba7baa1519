-- bus_bandwidth: bus bandwidth of a collective, bytes/s: comparable with the hardware's, whatever the number of ranks.
--
-- Arguments:
--   op           VARCHAR  AllReduce, AllGather, ReduceScatter, AllToAll, Broadcast, Reduce or SendRecv
--   size_bytes   BIGINT   size of the operation, as the library counts it
--   ranks        BIGINT   ranks of the communicator
--   duration_ns  BIGINT   its time, ns
-- Output: DOUBLE: bytes/s; NULL for an operation whose factor is not defined, or without ranks or time
-- Assumes: the factors of nccl-tests (doc/PERFORMANCE.md); for AllGather and ReduceScatter size_bytes is the whole.
-- Example: SELECT op, median(bus_bandwidth(op, bytes, n_ranks, end_ns - start_ns)) FROM comm_ops GROUP BY op;
CREATE OR REPLACE MACRO bus_bandwidth(op, size_bytes, ranks, duration_ns) AS
    alg_bandwidth(size_bytes, duration_ns) * CASE
        WHEN op = 'AllReduce' THEN 2.0 * (ranks - 1) / nullif(ranks, 0)
        WHEN op IN ('AllGather', 'ReduceScatter', 'AllToAll') THEN 1.0 * (ranks - 1) / nullif(ranks, 0)
        WHEN op IN ('Broadcast', 'Reduce', 'SendRecv') THEN 1.0
    END;
