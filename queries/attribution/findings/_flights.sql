-- _flights: what messages took beyond wire and base latency, by rank and receiver.
--
-- Inputs: rdma_messages, rdma_qps, fits, _counted_steps, steps
-- Output:
--   rank       BIGINT   sender
--   node       VARCHAR  its node
--   nic        VARCHAR  its NIC
--   peer_rank  BIGINT   receiver; NULL where the queue pair's other end is unknown
--   n          BIGINT   messages with a completion
--   excess_ns  HUGEINT  sum of max(0, complete - end of service - rtt0), ns
--   rtt0_ns    BIGINT   base round trip
--   n_qps      BIGINT   queue pairs used
CREATE OR REPLACE TEMP TABLE _flights AS
WITH far_end AS (
    SELECT node, pid, qp, any_value(peer_rank) AS peer_rank
    FROM rdma_qps
    WHERE peer_rank IS NOT NULL
    GROUP BY ALL
    HAVING count(DISTINCT peer_rank) = 1
),
base AS (
    SELECT node, nic, min(rtt0_ns) AS rtt0_ns FROM fits WHERE rtt0_ns IS NOT NULL GROUP BY ALL
)
SELECT
    m.rank,
    m.node,
    m.nic,
    q.peer_rank,
    count(*) AS n,
    sum(greatest(0, m.complete_ns - m.service_end_ns - b.rtt0_ns)) AS excess_ns,
    any_value(b.rtt0_ns) AS rtt0_ns,
    count(DISTINCT m.qp) AS n_qps
FROM rdma_messages AS m
JOIN base AS b ON m.node IS NOT DISTINCT FROM b.node AND m.nic IS NOT DISTINCT FROM b.nic
LEFT JOIN far_end AS q ON m.node = q.node AND m.pid = q.pid AND m.qp = q.qp
WHERE m.rank IS NOT NULL AND m.complete_ns IS NOT NULL AND m.service_end_ns IS NOT NULL
GROUP BY m.rank, m.node, m.nic, q.peer_rank
ORDER BY m.rank, m.node, m.nic, q.peer_rank;
