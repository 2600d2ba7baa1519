-- find_data_bound: the GPU idles while the launch thread fetches data.
--
-- Inputs: _rank_shares, breakdown, _counted_steps, ranks, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_data_bound AS
WITH hit AS (
    SELECT s.rank, r.node, 100 * s.data_ns / s.wall_ns AS share, s.data_ns
    FROM _rank_shares AS s
    JOIN ranks AS r ON s.rank = r.rank
    WHERE 100 * s.data_ns / s.wall_ns >= threshold('data_bound', 'share')
),
steps_hit AS (
    SELECT b.rank, arg_max(b.step, (b.attributed_ns, -b.step)) AS step, max(b.attributed_ns) AS longest_ns
    FROM breakdown AS b
    JOIN _counted_steps AS c ON b.rank = c.rank AND b.step = c.step
    WHERE b.category = 'host_data'
    GROUP BY b.rank
)
SELECT
    CASE WHEN max(h.share) >= threshold('data_bound', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    arg_max(h.rank, (h.share, -h.rank)) AS rank,
    CASE WHEN count(DISTINCT h.node) = 1 THEN any_value(h.node) END AS node,
    NULL::VARCHAR AS nic, arg_max(s.step, (h.share, -h.rank)) AS step,
    'GPU idle while data is fetched, % of the rank''s wall time' AS measure,
    max(h.share) AS value,
    threshold('data_bound', 'share') AS threshold,
    'measured_nsys' AS evidence,
    printf('Data-bound: on %d of %d ranks%s the GPU waits for data, up to %.1f %% of the ' || step_word() || '; longest %.1f ms in ' || step_word() || ' %d of rank %d.',
        count(*), (SELECT count(*) FROM _rank_shares),
        CASE WHEN count(DISTINCT h.node) = 1 AND (SELECT count(DISTINCT node) FROM ranks) > 1
            THEN printf(' (all on %s)', any_value(h.node)) ELSE '' END,
        max(h.share), max(s.longest_ns) / 1e6, arg_max(s.step, (s.longest_ns, -h.rank)), arg_max(h.rank, (s.longest_ns, -h.rank))) AS text,
    'excluded: work that was launched already (gpu_dependency); not excluded: a copy of the batch that is synchronous by mistake' AS confounders,
    'more loader workers, prefetch, pinned memory; look at the storage of the node named' AS next
FROM hit AS h
LEFT JOIN steps_hit AS s ON h.rank = s.rank
HAVING count(*) > 0;
