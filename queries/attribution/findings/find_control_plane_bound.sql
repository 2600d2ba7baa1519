-- find_control_plane_bound: the wire idles because the CPU proxy does not post fast enough.
--
-- Inputs: _rank_shares, _typical_time, breakdown, _counted_steps, captures, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_control_plane_bound AS
WITH total AS (
    SELECT
        100 * sum(control_ns) / sum(wall_ns) AS share,
        100 * sum(control_ns) / nullif(sum(exposed_ns), 0) AS of_communication,
        arg_max(rank, (control_ns / wall_ns, -rank)) AS worst
    FROM _rank_shares
),
leaf AS (
    SELECT category, sum(time_ns) AS time_ns
    FROM _typical_time
    WHERE starts_with(category, 'ctl_')
    GROUP BY category
    ORDER BY time_ns DESC, category
    LIMIT 1
),
-- Leaves come from eBPF, from the NCCL profiler or from run.toml: the finding carries what most of the time has.
levels AS (
    SELECT b.evidence
    FROM breakdown AS b
    JOIN _counted_steps AS c ON b.rank = c.rank AND b.step = c.step
    WHERE starts_with(b.category, 'ctl_')
    GROUP BY b.evidence
    ORDER BY sum(b.attributed_ns) DESC, b.evidence
    LIMIT 1
),
calibration AS (
    SELECT bool_and(probe_cost_ns IS NOT NULL) AS calibrated, max(probe_call_ns) AS call_ns
    FROM captures
    WHERE kind IN ('ebpf_csv', 'perf_script') AND status <> 'unusable'
)
SELECT
    CASE WHEN t.share >= threshold('control_plane_bound', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    t.worst AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'control plane and doorbell, % of wall time' AS measure,
    t.share AS value,
    threshold('control_plane_bound', 'share') AS threshold,
    e.evidence,
    printf('The NIC idles while the CPU proxy prepares messages: %.1f %% of the ' || step_word() || ' and %.0f %% of exposed communication, '
        || 'most of it %s.', t.share, t.of_communication, l.category) AS text,
    'excluded: the wire (it is idle in this time), receivers (flight beyond wire and base latency is net_excess), late peers'
        || CASE WHEN coalesce(c.calibrated, false) THEN '; probe cost is subtracted from posts'
                || coalesce(printf(', the loop holds %.1f us of the probes themselves for each', c.call_ns / 1000), '')
            ELSE '; not excluded: the cost of the probes, which was not calibrated' END AS confounders,
    'fewer, larger messages (two-hop aggregation, PXN), GPU-initiated posts, or more proxy threads on cores of their own: '
        || 'mfuloss whatif compares them' AS next
FROM total AS t, leaf AS l, levels AS e, calibration AS c
WHERE t.share >= threshold('control_plane_bound', 'share')
    AND t.of_communication >= threshold('control_plane_bound', 'of_communication');
