-- find_environment_misread: a variable is set that does not mean what it is often taken for.
--
-- Inputs: _environment, topology, counters, ranks, rdma_qps, thresholds
-- Output:
--   severity    VARCHAR  info or warning
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: NCCL_IB_HCA entries are prefixes unless the list starts with = or ^=; that selects more than was meant only
--          where a device was seen whose name goes on with a digit.
CREATE OR REPLACE TEMP TABLE find_environment_misread AS
WITH devices AS (
    SELECT device FROM (
        SELECT a AS device FROM topology UNION SELECT b FROM topology UNION SELECT device FROM counters
        UNION SELECT nic FROM ranks UNION SELECT nic FROM rdma_qps
    )
    WHERE device IS NOT NULL AND NOT regexp_matches(device, '^GPU[0-9]+$')
),
entries AS (
    SELECT e.node, e.rank, e.n, e.value, split_part(trim(i.entry), ':', 1) AS entry
    FROM _environment AS e, unnest(string_split(ltrim(e.value, '^'), ',')) AS i(entry)
    WHERE e.name = 'NCCL_IB_HCA' AND NOT starts_with(ltrim(e.value, '^'), '=')
),
prefixes AS (
    SELECT any_value(t.node) AS node, any_value(t.rank) AS rank, max(t.n) AS n, t.value, t.entry,
        string_agg(d.device, ', ' ORDER BY d.device) AS more,
        CASE WHEN starts_with(t.value, '^') THEN 'excludes' ELSE 'selects' END AS does,
        ltrim(t.value, '^') AS names
    FROM entries AS t
    JOIN devices AS d ON regexp_matches(t.entry, '[0-9]$') AND starts_with(d.device, t.entry)
        AND regexp_matches(substr(d.device, length(t.entry) + 1), '^[0-9]')
    WHERE NOT EXISTS (FROM entries AS o WHERE o.value = t.value AND o.entry = d.device)
    GROUP BY t.value, t.entry
),
said AS (
    SELECT 'warning' AS severity, node, rank, n AS value, 1 AS threshold, 'ranks or nodes with the variable' AS measure,
        printf('NCCL_IB_HCA=%s: %s is a prefix and also %s %s.', value, entry, does, more) AS text,
        CASE WHEN starts_with(value, '^') THEN 'NCCL_IB_HCA: write ^= to leave out exact names: NCCL_IB_HCA=^=' || names
            ELSE 'NCCL_IB_HCA: write = before the list to select exact names: NCCL_IB_HCA==' || names END AS next
    FROM prefixes
    UNION ALL
    SELECT 'warning', node, rank, n, 1 AS threshold, 'ranks or nodes with the variable' AS measure,
        'NCCL_IB_GDA_ENABLE does not exist: it has no effect.' AS text,
        'NCCL_IB_GDA_ENABLE: remove it; GPU-initiated posts are NCCL_GIN_ENABLE and NCCL_GIN_TYPE in NCCL, '
            || 'NVSHMEM_IB_ENABLE_IBGDA and NVSHMEM_IBGDA_NIC_HANDLER in NVSHMEM' AS next
    FROM _environment WHERE name = 'NCCL_IB_GDA_ENABLE'
    UNION ALL
    SELECT 'info', node, rank, n, 1 AS threshold, 'ranks or nodes with the variable' AS measure,
        'NCCL_NET_GDR_LEVEL=5 means SYS: GPUDirect RDMA at any distance, across sockets too.' AS text,
        'NCCL_NET_GDR_LEVEL: write the word (PIX, PXB, PHB, SYS); a far NIC through the socket interconnect can be slower '
            || 'than host memory' AS next
    FROM _environment WHERE name = 'NCCL_NET_GDR_LEVEL' AND try_cast(value AS BIGINT) = 5
    UNION ALL
    SELECT 'info', node, rank, n, 1 AS threshold, 'ranks or nodes with the variable' AS measure,
        'NCCL_CROSS_NIC=1 lets a ring or tree change its NIC between nodes: it is about rails, not about sockets.' AS text,
        'NCCL_CROSS_NIC: leave it at 2, or 0 on a fabric with a switch for each rail' AS next
    FROM _environment WHERE name = 'NCCL_CROSS_NIC' AND try_cast(value AS BIGINT) = 1
    UNION ALL
    SELECT 'warning', node, rank, try_cast(value AS BIGINT), threshold('environment_misread', 'queue_pairs') AS threshold,
        'queue pairs for each connection' AS measure,
        printf('NCCL_IB_QPS_PER_CONNECTION=%s is a number of queue pairs for each connection, not the depth of a queue.', value) AS text,
        'NCCL_IB_QPS_PER_CONNECTION: use 1 to 8; more queue pairs cost the NIC context misses' AS next
    FROM _environment
    WHERE name = 'NCCL_IB_QPS_PER_CONNECTION' AND try_cast(value AS BIGINT) >= threshold('environment_misread', 'queue_pairs')
)
SELECT severity, rank, node, NULL::VARCHAR AS nic, NULL::BIGINT AS step, measure, value, threshold, 'inferred' AS evidence, text,
    'excluded: other values, devices that were not seen; not excluded: that it is meant so' AS confounders, next
FROM said;
