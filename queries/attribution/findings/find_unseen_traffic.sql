-- find_unseen_traffic: ports sent more than the messages that were seen (invariant I9).
--
-- Inputs: _port_bytes, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_unseen_traffic AS
WITH traffic AS (
    SELECT sum(sent_bytes) AS sent_bytes, sum(seen_bytes) AS seen_bytes FROM _port_bytes
)
SELECT
    'info' AS severity,
    NULL::BIGINT AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'bytes of the ports beyond the messages seen, %' AS measure,
    100 * (sent_bytes - seen_bytes) / sent_bytes AS value,
    threshold('unseen_traffic', 'ratio') AS threshold,
    'inferred' AS evidence,
    printf('Ports sent %.2f GB, the messages that were seen account for %.2f GB with headers: %.1f %% is unseen traffic.',
        sent_bytes / 1e9, seen_bytes / 1e9, 100 * (sent_bytes - seen_bytes) / sent_bytes) AS text,
    'excluded: headers (counted in); not excluded: lost events, other jobs on the ports, counters sampled over a longer time' AS confounders,
    'sample the counters over the same time as the collector runs, and look at lost_events' AS next
FROM traffic
WHERE sent_bytes > 0
    AND 100 * seen_bytes / sent_bytes >= threshold('gpu_initiated', 'posted')
    AND 100 * (sent_bytes - seen_bytes) / sent_bytes > threshold('unseen_traffic', 'ratio');
