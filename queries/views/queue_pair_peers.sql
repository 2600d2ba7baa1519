-- queue_pair_peers: the other end of each queue pair.
--
-- Inputs: rdma_qps
-- Output:
--   run         VARCHAR  run
--   node        VARCHAR  node
--   pid         BIGINT   process
--   qp          BIGINT   queue pair
--   peer_qp     BIGINT   remote queue pair; NULL where unknown
--   peer_rank   BIGINT   rank at the other end; NULL where unknown or where sources disagree
--   peer_class  VARCHAR  same_node, same_rail or cross_rail; NULL where unknown
-- Assumes: a queue pair keeps its peer; the last that was seen with a peer counts for peer_qp and peer_class.
-- Example: SELECT peer_rank, count(*) FROM queue_pair_peers GROUP BY ALL ORDER BY ALL;
CREATE OR REPLACE VIEW queue_pair_peers AS
SELECT run, node, pid, qp,
    last(peer_qp ORDER BY at_ns, peer_qp) FILTER (WHERE peer_qp IS NOT NULL) AS peer_qp,
    CASE WHEN min(peer_rank) = max(peer_rank) THEN min(peer_rank) END AS peer_rank,
    last(peer_class ORDER BY at_ns, peer_class) FILTER (WHERE peer_class IS NOT NULL) AS peer_class
FROM rdma_qps
GROUP BY run, node, pid, qp;
