-- find_nic_imbalance: one NIC of a node carries far more than its share.
--
-- Inputs: _port_bytes, rdma_messages, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: nodes whose busiest NIC has one name are one finding: a variable or a placement that all of them have.
CREATE OR REPLACE TEMP TABLE find_nic_imbalance AS
WITH carried AS (
    SELECT node, device AS nic, sent_bytes, 'port counters' AS basis FROM _port_bytes
    UNION ALL
    SELECT node, nic, sum(bytes) AS sent_bytes, 'posted messages' AS basis
    FROM rdma_messages
    WHERE nic IS NOT NULL AND node NOT IN (SELECT node FROM _port_bytes)
    GROUP BY node, nic
),
by_node AS (
    SELECT node, any_value(basis) AS basis, count(*) AS n_nics, sum(sent_bytes) AS sent_bytes, max(sent_bytes) AS most_bytes,
        arg_max(nic, (sent_bytes, nic)) AS nic, count(*) FILTER (sent_bytes < 0.01 * (SELECT max(sent_bytes) FROM carried)) AS idle
    FROM carried
    GROUP BY node
),
uneven AS (
    SELECT *, n_nics * most_bytes / sent_bytes AS times
    FROM by_node
    WHERE n_nics > 1 AND sent_bytes >= threshold('nic_imbalance', 'bytes')
        AND n_nics * most_bytes / sent_bytes >= threshold('nic_imbalance', 'ratio')
)
SELECT
    'warning' AS severity,
    NULL::BIGINT AS rank, CASE WHEN count(*) = 1 THEN any_value(node) END AS node, nic, NULL::BIGINT AS step,
    'bytes of the busiest NIC over the mean of its node' AS measure,
    max(times) AS value,
    threshold('nic_imbalance', 'ratio') AS threshold,
    CASE basis WHEN 'port counters' THEN 'inferred' ELSE 'measured_ebpf' END AS evidence,
    printf('%s of %s carries %s%.1f times the mean of the node''s %d NICs%s (by %s).', nic,
        CASE count(*) WHEN 1 THEN any_value(node)
            ELSE printf('%d nodes (%s%s)', count(*), array_to_string(list(node ORDER BY times DESC, node)[:3], ', '),
                CASE WHEN count(*) > 3 THEN ', ...' ELSE '' END) END,
        CASE WHEN count(*) > 1 THEN 'up to ' ELSE '' END, max(times), n_nics,
        CASE WHEN max(idle) > 0 THEN printf('; %d of them idle', max(idle)) ELSE '' END, basis) AS text,
    'excluded: too little traffic to matter; not excluded: a job that uses part of the node by design' AS confounders,
    'check NCCL_IB_HCA, GPU to NIC affinity (nvidia-smi topo -m) and [network] nics' AS next
FROM uneven
GROUP BY nic, n_nics, basis
ORDER BY ALL;
