-- alg_bandwidth: algorithm bandwidth of an operation, bytes/s: its size over its time.
--
-- Arguments:
--   size_bytes   BIGINT  size of the operation, as the library counts it
--   duration_ns  BIGINT  its time, ns
-- Output: DOUBLE: bytes/s; NULL where the time is 0
-- Assumes: the definition of nccl-tests (doc/PERFORMANCE.md).
-- Example: SELECT op, max(alg_bandwidth(bytes, end_ns - start_ns)) FROM comm_ops GROUP BY op;
CREATE OR REPLACE MACRO alg_bandwidth(size_bytes, duration_ns) AS size_bytes * 1e9 / nullif(duration_ns, 0);
