-- nic_bandwidth: payload that each NIC completed, over time.
--
-- Inputs: rdma_messages
-- Arguments:
--   in_run     VARCHAR  one run; NULL: all
--   bucket_ns  BIGINT   width of a window, ns
-- Output:
--   run               VARCHAR  run
--   node              VARCHAR  node
--   nic               VARCHAR  RDMA device; NULL where unknown
--   from_ns           BIGINT   start of the window, ns on the run clock
--   n_messages        BIGINT   messages completed in it
--   total_bytes       BIGINT   their payload
--   rate_bytes_per_s  DOUBLE   total_bytes over the window's width
-- Assumes: a message counts in the window of its completion; windows without any have no row; reads are payload that came in.
-- Example: FROM nic_bandwidth(bucket_ns := 10000000) WHERE nic = 'mlx5_0';
CREATE OR REPLACE MACRO nic_bandwidth(in_run := NULL, bucket_ns := 1000000) AS TABLE
SELECT m.run, m.node, m.nic, m.complete_ns // bucket_ns * bucket_ns AS from_ns, count(*) AS n_messages,
    sum(m.bytes)::BIGINT AS total_bytes, sum(m.bytes) * 1e9 / bucket_ns AS rate_bytes_per_s
FROM rdma_messages AS m
WHERE (in_run IS NULL OR m.run = in_run) AND m.complete_ns IS NOT NULL
GROUP BY m.run, m.node, m.nic, from_ns
ORDER BY m.run, m.node, m.nic, from_ns;
