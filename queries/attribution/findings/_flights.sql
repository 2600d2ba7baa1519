-- _flights: what messages took beyond wire and base latency, by rank and receiver.
--
-- Inputs: rdma_messages, rdma_qps, ranks, fits, _counted_steps, steps
-- Output:
--   rank       BIGINT   sender
--   node       VARCHAR  its node
--   nic        VARCHAR  its NIC
--   peer_rank  BIGINT   receiver; NULL where the queue pair's other end is unknown
--   n          BIGINT   messages with a completion
--   excess_ns  HUGEINT  sum of max(0, complete - end of service - rtt0), ns
--   rtt0_ns    BIGINT   base round trip
--   n_qps      BIGINT   queue pairs used
-- Assumes: numbers of queue pairs repeat across nodes: an end counts where exactly one rank's queue pair names it back.
CREATE OR REPLACE TEMP TABLE _flights AS
WITH ends AS (
    SELECT DISTINCT q.node, q.pid, q.qp, q.peer_qp, q.peer_rank, r.rank
    FROM rdma_qps AS q
    LEFT JOIN ranks AS r ON q.node = r.node AND q.pid = r.pid
),
-- The other end by rank where a source says so, else the queue pair that names this one as its other end.
far_end AS (
    SELECT node, pid, qp, any_value(peer_rank) AS peer_rank
    FROM (
        SELECT node, pid, qp, peer_rank FROM ends WHERE peer_rank IS NOT NULL
        UNION ALL
        SELECT a.node, a.pid, a.qp, b.rank
        FROM ends AS a
        JOIN ends AS b ON a.peer_qp = b.qp AND b.peer_qp = a.qp AND a.rank IS DISTINCT FROM b.rank
        WHERE a.peer_rank IS NULL AND b.rank IS NOT NULL
    )
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
