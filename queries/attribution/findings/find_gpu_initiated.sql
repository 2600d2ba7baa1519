-- find_gpu_initiated: ports send what no CPU posted: the GPU rings the doorbell itself.
--
-- Inputs: _port_bytes, fits, run_config, _typical_time, captures, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_gpu_initiated AS
WITH traffic AS (
    SELECT sum(sent_bytes) AS sent_bytes, sum(seen_bytes) AS seen_bytes, max(sent_bytes) AS most_bytes FROM _port_bytes
),
watched AS (
    SELECT count(*) AS n FROM captures WHERE kind LIKE 'ebpf%' AND status <> 'unusable'
),
opaque AS (
    SELECT sum(time_ns) FILTER (category = 'comm_unattributed') / count(DISTINCT rank) AS time_ns FROM _typical_time
),
wire AS (
    SELECT coalesce((SELECT beta_bytes_per_s FROM run_config), (SELECT max(beta_bytes_per_s) FROM fits)) AS beta_bytes_per_s
)
SELECT
    'info' AS severity,
    NULL::BIGINT AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'bytes posted by CPUs, % of the ports'' bytes' AS measure,
    100 * t.seen_bytes / t.sent_bytes AS value,
    threshold('gpu_initiated', 'posted') AS threshold,
    'inferred' AS evidence,
    printf('GPU-initiated communication: ports sent %.2f GB of which CPUs posted %.1f %%; there is no doorbell to see%s.',
        t.sent_bytes / 1e9, 100 * t.seen_bytes / t.sent_bytes,
        CASE WHEN w.beta_bytes_per_s > 0 AND o.time_ns > 0
            THEN printf('; the wire bound of the busiest port is %.2f ms over the capture, comm_unattributed of a rank %.2f ms',
                t.most_bytes / w.beta_bytes_per_s * 1e3, o.time_ns / 1e6)
            ELSE '' END) AS text,
    'excluded: a collector that was not running (its capture is there); not excluded: another job on the same ports' AS confounders,
    'nothing to mend by itself: its time stays comm_unattributed; compare it with the wire bound' AS next
FROM traffic AS t, watched AS c, opaque AS o, wire AS w
WHERE c.n > 0 AND t.sent_bytes >= threshold('gpu_initiated', 'bytes')
    AND 100 * t.seen_bytes / t.sent_bytes < threshold('gpu_initiated', 'posted');
