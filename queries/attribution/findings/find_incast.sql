-- find_incast: messages queue at one receiver.
--
-- Inputs: _rank_shares, _receiver_excess, _counter_growth, waits, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_incast AS
WITH total AS (
    SELECT 100 * sum(excess_ns) / sum(wall_ns) AS share FROM _rank_shares
),
marks AS (
    SELECT sum(growth) FILTER (counter IN ('np_cnp_sent', 'rp_cnp_handled', 'np_ecn_marked_roce_packets')) AS congestion,
        sum(growth) FILTER (counter = 'port_xmit_wait') AS xmit_wait,
        any_value(link_layer) AS link_layer
    FROM _counter_growth
)
SELECT
    CASE WHEN t.share >= threshold('incast', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    r.peer_rank AS rank, r.node, r.nic, NULL::BIGINT AS step,
    'flight beyond wire and base latency, % of wall time' AS measure,
    t.share AS value,
    threshold('incast', 'share') AS threshold,
    'inferred' AS evidence,
    printf('Messages queue at rank %d%s: %.0f %% of all excess flight time belongs to the %.0f %% of messages that go there, from %d '
        || 'ranks; excess takes %.1f %% of the ' || step_word() || '%s.', r.peer_rank,
        CASE WHEN r.receivers > 1 THEN printf(' (%d ranks receive on its NIC)', r.receivers) ELSE '' END,
        100 * r.excess_share, 100 * r.message_share, r.senders, t.share,
        CASE
            WHEN m.link_layer = 'Ethernet' AND m.congestion > 0 THEN printf('; ports counted %.0f congestion marks', m.congestion)
            WHEN m.link_layer = 'InfiniBand' AND m.xmit_wait > 0 THEN printf('; port_xmit_wait grew by %.0f', m.xmit_wait)
            ELSE '' END) AS text,
    'excluded: the senders'' own wire (FIFO service is taken out), queue-pair context misses (they do not choose a receiver), '
        || 'a NIC that more ranks share than others do (compared with its like); '
        || 'not excluded: a slow receiver NIC or PCIe path at that rank' AS confounders,
    'spread the senders in time (stagger peers by rank), or balance what that rank receives (hot experts)' AS next
FROM total AS t
CROSS JOIN (FROM _receiver_excess ORDER BY least(concentration, among_like) DESC NULLS LAST, peer_rank LIMIT 1) AS r
CROSS JOIN marks AS m
WHERE t.share >= threshold('incast', 'share') AND least(r.concentration, r.among_like) >= threshold('incast', 'concentration');
