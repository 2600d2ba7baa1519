-- find_lost_events: the recording tool lost events, so part of the answer is coarser.
--
-- Inputs: captures, _typical_time
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_lost_events AS
WITH lost AS (
    SELECT sum(lost_events) AS n, count(*) AS files, any_value(host ORDER BY lost_events DESC, name) AS node
    FROM captures
    WHERE lost_events > 0
),
gap AS (
    SELECT coalesce(100 * sum(time_ns) FILTER (category = 'trace_gap') / (SELECT sum(wall_ns) FROM _rank_shares), 0) AS share
    FROM _typical_time
)
SELECT
    'warning' AS severity,
    NULL::BIGINT AS rank, l.node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'events lost by the recording tool' AS measure,
    l.n AS value,
    1 AS threshold,
    'measured_ebpf' AS evidence,
    printf('%d events were lost in %d captures (most on %s): %.1f %% of the wall time is trace_gap for it.', l.n, l.files, l.node, g.share) AS text,
    'excluded: nothing to exclude, the tool counts them' AS confounders,
    'record at a lower rate or without poll probes; docs/ebpf.md says at which rates which version loses' AS next
FROM lost AS l, gap AS g
WHERE l.n > 0;
