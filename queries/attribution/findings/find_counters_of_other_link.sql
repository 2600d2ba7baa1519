-- find_counters_of_other_link: counters that mean nothing on the link that they were sampled on.
--
-- Inputs: counters
-- Output:
--   severity    VARCHAR  info or warning
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: pause, ECN and CNP counters are RoCE's, port_xmit_wait is InfiniBand's. A driver may show both with zeros: only
--          readings other than 0 count.
CREATE OR REPLACE TEMP TABLE find_counters_of_other_link AS
WITH wrong AS (
    SELECT node, device, link_layer, counter, count(*) AS n
    FROM counters
    WHERE value <> 0 AND (
        link_layer = 'InfiniBand' AND (counter IN ('np_cnp_sent', 'rp_cnp_handled', 'rp_cnp_ignored', 'np_ecn_marked_roce_packets')
            OR starts_with(counter, 'roce_') OR regexp_matches(counter, '^[rt]x_prio[0-9]_pause'))
        OR link_layer = 'Ethernet' AND counter = 'port_xmit_wait')
    GROUP BY ALL
)
SELECT
    'info' AS severity,
    NULL::BIGINT AS rank, node, device AS nic, NULL::BIGINT AS step,
    'counters that do not belong to the link' AS measure,
    count(*) AS value,
    1 AS threshold,
    'inferred' AS evidence,
    printf('%s of %s is %s, yet %s was sampled there: no congestion is read from it.', device, node, link_layer,
        string_agg(counter, ', ' ORDER BY counter)) AS text,
    'excluded: counters that stay 0; not excluded: a link layer that was noted wrongly' AS confounders,
    'sample port_xmit_wait on InfiniBand; ECN, CNP and pause (ethtool) on RoCE' AS next
FROM wrong
GROUP BY node, device, link_layer;
