-- nic_balance: how a node's RDMA payload is shared among its NICs, and how far the NIC is from the GPUs that use it.
--
-- Inputs: rdma_messages, ranks, gpu_nics
-- Output:
--   run               VARCHAR  run
--   node              VARCHAR  node
--   nic               VARCHAR  RDMA device; NULL where the messages' is unknown
--   messages          BIGINT   messages posted to it
--   bytes             BIGINT   payload
--   share             DOUBLE   part of the node's payload
--   ranks             BIGINT   ranks that use it
--   node_ranks        BIGINT   ranks of the node that post messages
--   node_nics         BIGINT   NICs that the node's messages use
--   imbalance         DOUBLE   its payload over the mean of the node's used NICs; 1 is even
--   all_through_one   BOOLEAN  several ranks, one NIC: nothing else carries the node's traffic
--   far_ranks         BIGINT   ranks that use it though another NIC is nearer to their GPU; NULL without a topology
-- Example: SELECT node, nic, share FROM nic_balance WHERE all_through_one OR imbalance > 1.5;
CREATE OR REPLACE VIEW nic_balance AS
WITH used AS (
    SELECT run, node, nic, rank, count(*) AS messages, sum(bytes)::BIGINT AS bytes FROM rdma_messages GROUP BY ALL
),
placed AS (
    SELECT u.*, CASE WHEN g.nearest IS NULL THEN NULL ELSE NOT g.nearest END AS far
    FROM used AS u
    LEFT JOIN (SELECT run, rank, min(gpu_index) AS gpu_index FROM ranks GROUP BY ALL) AS r USING (run, rank)
    LEFT JOIN gpu_nics AS g ON g.run = u.run AND g.node = u.node AND g.gpu_index = r.gpu_index AND g.nic = u.nic
),
by_nic AS (
    SELECT run, node, nic, sum(messages)::BIGINT AS messages, sum(bytes)::BIGINT AS bytes,
        count(DISTINCT rank) AS ranks, count_if(far)::BIGINT AS far, count(far) AS known
    FROM placed
    GROUP BY run, node, nic
),
by_node AS (
    SELECT run, node, count(DISTINCT rank) AS node_ranks, count(DISTINCT nic) AS node_nics,
        sum(bytes)::BIGINT AS node_bytes
    FROM used
    GROUP BY run, node
)
SELECT n.run, n.node, n.nic, n.messages, n.bytes, n.bytes / nullif(t.node_bytes, 0) AS share,
    n.ranks, t.node_ranks, t.node_nics, n.bytes * t.node_nics / nullif(t.node_bytes, 0) AS imbalance,
    t.node_nics = 1 AND t.node_ranks > 1 AS all_through_one,
    CASE WHEN n.known > 0 THEN n.far END AS far_ranks
FROM by_nic AS n
JOIN by_node AS t ON t.run = n.run AND t.node IS NOT DISTINCT FROM n.node
ORDER BY n.run, n.node, n.nic;
