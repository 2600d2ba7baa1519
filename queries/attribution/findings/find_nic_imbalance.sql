-- find_nic_imbalance: one NIC of a node carries far more than its share.
--
-- Inputs: _port_bytes, rdma_messages, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
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
)
SELECT
    'warning' AS severity,
    NULL::BIGINT AS rank, node, nic, NULL::BIGINT AS step,
    'bytes of the busiest NIC over the mean of its node' AS measure,
    n_nics * most_bytes / sent_bytes AS value,
    threshold('nic_imbalance', 'ratio') AS threshold,
    CASE basis WHEN 'port counters' THEN 'inferred' ELSE 'measured_ebpf' END AS evidence,
    printf('%s of %s carries %.1f times the mean of the node''s %d NICs%s (by %s).', nic, node, n_nics * most_bytes / sent_bytes, n_nics,
        CASE WHEN idle > 0 THEN printf('; %d of them idle', idle) ELSE '' END, basis) AS text,
    'excluded: too little traffic to matter; not excluded: a job that uses part of the node by design' AS confounders,
    'check NCCL_IB_HCA, GPU to NIC affinity (nvidia-smi topo -m) and [network] nics' AS next
FROM by_node
WHERE n_nics > 1 AND sent_bytes >= threshold('nic_imbalance', 'bytes')
    AND n_nics * most_bytes / sent_bytes >= threshold('nic_imbalance', 'ratio');
