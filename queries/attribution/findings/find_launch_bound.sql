-- find_launch_bound: the GPU idles again and again because launches come too slowly.
--
-- Inputs: _idle_gaps, _rank_shares, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_launch_bound AS
WITH slow AS (
    SELECT g.rank, count(*) AS n, sum(g.gap_ns) AS gap_ns, median(g.gap_ns) AS typical_ns,
        100 * sum(g.gap_ns) / any_value(r.wall_ns) AS share
    FROM _idle_gaps AS g
    JOIN _rank_shares AS r ON g.rank = r.rank
    WHERE g.category IN ('host_launch', 'host_other') AND g.gap_ns < threshold('launch_bound', 'gap_ns')
    GROUP BY g.rank
),
hit AS (
    SELECT * FROM slow WHERE share >= threshold('launch_bound', 'share')
)
SELECT
    CASE WHEN max(share) >= threshold('launch_bound', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    arg_max(rank, (share, -rank)) AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'GPU idle in gaps under 1 ms before late launches, % of the rank''s wall time' AS measure,
    max(share) AS value,
    threshold('launch_bound', 'share') AS threshold,
    'measured_nsys' AS evidence,
    printf('Launch-bound: on %d of %d ranks the GPU waits for launches; worst is rank %d with %.1f %% of its ' || step_word() || ' in %d gaps of %.1f µs (median).',
        count(*), (SELECT count(*) FROM _rank_shares), arg_max(rank, (share, -rank)), max(share), arg_max(n, (share, -rank)), arg_max(typical_ns, (share, -rank)) / 1e3) AS text,
    'excluded: work that was launched in time (gpu_dependency), synchronising calls (host_sync), single long stalls (host_stall); '
        || 'not excluded: the profiler''s own cost on each launch' AS confounders,
    'CUDA graphs, fewer and larger kernels, or a compiled step; check the launch thread for preemption' AS next
FROM hit
HAVING count(*) > 0;
