-- find_qp_thrash: excess on every path, with more queue pairs than a NIC's context cache holds.
--
-- Inputs: _rank_shares, _receiver_excess, _flights, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: no counter of the NIC shows its context cache, so this can be consistent with thrash and no more.
CREATE OR REPLACE TEMP TABLE find_qp_thrash AS
WITH total AS (
    SELECT 100 * sum(excess_ns) / sum(wall_ns) AS share FROM _rank_shares
),
pairs AS (
    SELECT node, nic, sum(n_qps) AS n_qps, sum(excess_ns) / sum(n) AS excess_each_ns
    FROM _flights
    GROUP BY ALL
    ORDER BY n_qps DESC, node, nic
    LIMIT 1
),
even AS (
    SELECT coalesce(max(concentration), 1) AS concentration FROM _receiver_excess
)
SELECT
    'warning' AS severity,
    NULL::BIGINT AS rank, p.node, p.nic, NULL::BIGINT AS step,
    'flight beyond wire and base latency, % of wall time' AS measure,
    t.share AS value,
    threshold('qp_thrash', 'share') AS threshold,
    'inferred' AS evidence,
    printf('Consistent with queue-pair context misses: %d queue pairs on %s %s, and every receiver shows excess (%.1f µs a message); '
        || 'it takes %.1f %% of the ' || step_word() || '.', p.n_qps, p.node, coalesce(p.nic, '(NIC unknown)'), p.excess_each_ns / 1e3, t.share) AS text,
    'excluded: incast (no receiver stands out), the senders'' own wire; '
        || 'not excluded: congestion inside the fabric, small PCIe read budgets, retransmission where its counters were not sampled'
        AS confounders,
    'use fewer queue pairs a peer (NCCL_IB_QPS_PER_CONNECTION, NVSHMEM_IBGDA_NUM_RC_PER_PE) and measure again' AS next
FROM total AS t, pairs AS p, even AS e
WHERE t.share >= threshold('qp_thrash', 'share')
    AND p.n_qps >= threshold('qp_thrash', 'queue_pairs')
    AND e.concentration < threshold('qp_thrash', 'concentration');
