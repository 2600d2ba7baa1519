-- nic_pair_alpha: latency of small messages between each pair of NICs.
--
-- Inputs: message_with_step, ranks
-- Arguments:
--   in_run       VARCHAR  one run; NULL: all
--   small_bytes  BIGINT   largest size that counts as small
-- Output:
--   run           VARCHAR  run
--   node          VARCHAR  node
--   nic           VARCHAR  RDMA device; NULL where unknown
--   peer_node     VARCHAR  node of the receiver; NULL where unknown
--   peer_nic      VARCHAR  NIC of the receiver's rank; NULL where unknown
--   opcode_class  VARCHAR  write, read, atomic or send
--   n_messages    BIGINT   messages used
--   min_ns        BIGINT   shortest flight, ns
--   p50_ns        BIGINT   median flight, ns
--   p99_ns        BIGINT   99th percentile, ns
-- Assumes: only messages posted with nothing of their queue pair in flight, completed without error: no queue of their own adds. The size's own time on the wire stays in.
-- Example: FROM nic_pair_alpha() ORDER BY p50_ns DESC;
CREATE OR REPLACE MACRO nic_pair_alpha(in_run := NULL, small_bytes := 4096) AS TABLE
WITH places AS (
    SELECT r.run, r.rank, min(r.node) AS node, min(r.nic) AS nic FROM ranks AS r GROUP BY r.run, r.rank
)
SELECT m.run, m.node, m.nic, p.node AS peer_node, p.nic AS peer_nic, m.opcode_class, count(*) AS n_messages,
    min(m.flight_ns) AS min_ns, quantile_disc(m.flight_ns, 0.5) AS p50_ns, quantile_disc(m.flight_ns, 0.99) AS p99_ns
FROM message_with_step AS m
LEFT JOIN places AS p ON m.run = p.run AND m.peer_rank = p.rank
WHERE (in_run IS NULL OR m.run = in_run) AND m.bytes <= small_bytes AND m.outstanding_at_post = 0 AND m.status = 0
    AND m.flight_ns >= 0
GROUP BY m.run, m.node, m.nic, p.node, p.nic, m.opcode_class
ORDER BY m.run, m.node, m.nic, p.node, p.nic, m.opcode_class;
