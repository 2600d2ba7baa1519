-- find_gpu_initiated_fallback: GPU-initiated posts were asked for, and something else happens.
--
-- Inputs: log_events, rdma_posts, _port_bytes, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: three grades. The GPU builds the work request and the CPU rings; a CPU proxy does both; memory registered by the
--          older module only, which is not slower. Other libraries of the process post by design: posts count from the
--          share of the ports' bytes on that is no setup traffic, and all of them where no port was sampled. The lines
--          are NVSHMEM's own (sources/logs.py has them).
CREATE OR REPLACE TEMP TABLE find_gpu_initiated_fallback AS
WITH lines AS (
    SELECT code, count(*) AS n, any_value(text ORDER BY at_ns, text) AS text, min(node) AS first_node, max(node) AS last_node
    FROM log_events
    WHERE code IN ('nvshmem_doorbell_by_cpu', 'nvshmem_nic_handler_needs_gdrcopy', 'nvshmem_transport_init_failed',
        'nvshmem_registration_by_peermem')
    GROUP BY code
),
asked AS (
    SELECT count(*) AS n FROM log_events
    WHERE code = 'NVSHMEM_IB_ENABLE_IBGDA' AND regexp_matches(text, '=\s*(1|true|yes|on)\s*$', 'i')
),
share AS (
    SELECT 100 * sum(seen_bytes) / nullif(sum(sent_bytes), 0) AS posted FROM _port_bytes
),
posted AS (
    SELECT count(*) AS n
    FROM rdma_posts
    WHERE coalesce((SELECT posted FROM share) >= threshold('gpu_initiated', 'posted'), true)
),
said AS (
    SELECT coalesce(sum(n) FILTER (code <> 'nvshmem_registration_by_peermem'), 0) AS n,
        any_value(text) FILTER (code <> 'nvshmem_registration_by_peermem') AS text,
        coalesce(sum(n) FILTER (code = 'nvshmem_registration_by_peermem'), 0) AS registration,
        -- A node is named where it is the only one that says so.
        CASE WHEN min(first_node) = max(last_node) THEN min(first_node) END AS node
    FROM lines
)
SELECT
    CASE WHEN s.n > 0 AND p.n > 0 OR a.n > 0 AND p.n > 0 THEN 'critical' WHEN s.n > 0 THEN 'warning' ELSE 'info' END AS severity,
    NULL::BIGINT AS rank, s.node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    CASE WHEN p.n > 0 THEN 'posts by CPUs where there should be none' ELSE 'log lines that mean a fallback' END AS measure,
    CASE WHEN p.n > 0 THEN p.n WHEN s.n > 0 THEN s.n ELSE s.registration END AS value,
    1 AS threshold,
    CASE WHEN p.n > 0 THEN 'measured_ebpf' ELSE 'inferred' END AS evidence,
    CASE
        WHEN s.n > 0 AND p.n > 0 THEN printf('GPU-initiated posts fell back to a CPU proxy, which builds and rings: %d posts by CPUs, and the library says "%s".', p.n, s.text)
        WHEN a.n > 0 AND p.n > 0 THEN printf('NVSHMEM_IB_ENABLE_IBGDA asks for GPU-initiated posts, yet CPUs made %d posts.', p.n)
        WHEN s.n > 0 THEN printf('GPU-initiated posts may ring through the CPU: the library says "%s"; no post by a CPU was seen.', s.text)
        ELSE 'Memory is registered by the older kernel module only: not slower.'
    END AS text,
    CASE WHEN p.n > 0 THEN 'excluded: log lines without effect (CPUs did post); not excluded: another library in the process that posts by design'
        ELSE 'not excluded: the fallback was not taken (no capture of posts tells)' END AS confounders,
    'check PeerMappingOverride=1 in the driver''s registry, GDRCopy, nvidia_peermem and NVSHMEM_IBGDA_NIC_HANDLER' AS next
FROM said AS s, asked AS a, posted AS p
WHERE s.n > 0 OR s.registration > 0 OR a.n > 0 AND p.n > 0;
