-- find_straggler: the ranks that the others wait for, again and again.
--
-- Inputs: waits, delay_cost, ranks, _counted_steps, _rank_shares, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: ranks of one node that are late together are one finding, named by the latest of them.
CREATE OR REPLACE TEMP TABLE find_straggler AS
WITH counted AS (
    SELECT w.* FROM waits AS w JOIN _counted_steps AS c ON w.rank = c.rank AND w.step = c.step
    WHERE w.kind IN ('straggler', 'pipeline') AND NOT w.within_clock_error
),
n_steps AS (
    SELECT count(DISTINCT step) AS n FROM _counted_steps
),
wall AS (
    SELECT sum(wall_ns) AS wall_ns FROM _rank_shares
),
culprits AS (
    SELECT r.node, w.culprit_rank, sum(w.wait_ns) AS wait_ns
    FROM counted AS w
    JOIN ranks AS r ON w.culprit_rank = r.rank
    GROUP BY ALL
),
by_node AS (
    SELECT c.node, arg_max(c.culprit_rank, (c.wait_ns, -c.culprit_rank)) AS rank, sum(c.wait_ns) AS wait_ns,
        max(c.wait_ns) AS own_ns
    FROM culprits AS c
    GROUP BY c.node
),
-- One rank alone, where it makes up most of its node's lateness; else the node as a whole.
late AS (
    SELECT node, rank, own_ns >= 0.6 * b.wait_ns AS alone, CASE WHEN alone THEN own_ns ELSE b.wait_ns END AS wait_ns
    FROM by_node AS b
),
persistence AS (
    SELECT l.node, count(DISTINCT w.step) AS steps, count(DISTINCT w.rank) AS victims
    FROM late AS l
    JOIN ranks AS r ON l.node = r.node
    JOIN counted AS w ON w.culprit_rank = r.rank AND (NOT l.alone OR w.culprit_rank = l.rank)
    WHERE w.wait_ns > 0
    GROUP BY l.node
),
doing AS (
    SELECT l.node, d.category
    FROM delay_cost AS d
    JOIN _counted_steps AS c ON d.victim_rank = c.rank AND d.step = c.step
    JOIN ranks AS r ON d.culprit_rank = r.rank
    JOIN late AS l ON l.node = r.node AND (NOT l.alone OR d.culprit_rank = l.rank)
    GROUP BY l.node, d.category
    QUALIFY row_number() OVER (PARTITION BY l.node ORDER BY sum(d.delay_ns) DESC, d.category) = 1
)
SELECT
    CASE WHEN 100 * l.wait_ns / w.wall_ns >= threshold('straggler', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    l.rank, l.node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'waits for this rank (or node), % of the wall time of all ranks' AS measure,
    100 * l.wait_ns / w.wall_ns AS value,
    threshold('straggler', 'share') AS threshold,
    'inferred' AS evidence,
    printf('%d %s for %s in %d of %d ' || step_word() || 's, %.1f ms in all; meanwhile it was mostly in %s (%s).',
        p.victims, CASE p.victims WHEN 1 THEN 'rank waits' ELSE 'ranks wait' END,
        CASE WHEN l.alone THEN printf('rank %d on %s', l.rank, l.node) ELSE printf('the ranks of %s', l.node) END,
        p.steps, s.n, l.wait_ns / 1e6, coalesce(d.category, 'unknown'),
        CASE
            WHEN d.category = 'compute' THEN 'slower kernels or more work'
            WHEN d.category IN ('host_data') THEN 'late data'
            WHEN starts_with(d.category, 'host_') OR d.category IN ('gpu_dependency', 'idle_other') THEN 'late launches'
            WHEN d.category IN ('memcpy') THEN 'copies'
            ELSE 'its own network'
        END) AS text,
    'excluded: clock error (waits within the bound of the pair are left out), unusable ranks (waits are lower bounds); '
        || CASE WHEN d.category = 'compute' THEN 'not excluded: unequal work by design (tokens per expert, sequence lengths)'
            ELSE 'not excluded: the same cause on ranks that were not captured' END AS confounders,
    CASE
        WHEN d.category = 'compute' THEN 'compare its kernel durations with another rank: clocks, power cap, tokens'
        WHEN d.category = 'host_data' THEN 'look at its data loader and storage'
        ELSE 'look at its launch thread: report --rank shows its own breakdown'
    END AS next
FROM late AS l
JOIN persistence AS p ON l.node = p.node
LEFT JOIN doing AS d ON l.node = d.node
CROSS JOIN wall AS w
CROSS JOIN n_steps AS s
WHERE 100 * l.wait_ns / w.wall_ns >= threshold('straggler', 'share')
    AND 100 * p.steps >= threshold('straggler', 'persistence') * s.n;
