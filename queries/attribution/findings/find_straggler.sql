-- find_straggler: the ranks that the others wait for, again and again.
--
-- Inputs: waits, delay_cost, ranks, _counted_steps, _rank_shares, _typical_time, categories, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: ranks of one node that are late together are one finding, named by the latest of them: waits go to the last rank
--          alone, and its neighbours were late too where they wait for it less than half as long as other nodes do. A step counts as one in
--          which they are late where the waits for them alone reach the share that a finding needs: among many ranks each
--          is the last of some operation by chance. Why they are late is what they spend more of their steps in than the
--          others; what they were in while the others waited is often the work that began late.
CREATE OR REPLACE TEMP TABLE find_straggler AS
WITH counted AS (
    SELECT w.* FROM waits AS w JOIN _counted_steps AS c ON w.rank = c.rank AND w.step = c.step
    WHERE w.kind IN ('straggler', 'pipeline') AND NOT w.within_clock_error
),
walls AS (
    SELECT step, sum(wall_ns) AS wall_ns FROM _counted_steps GROUP BY step
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
-- What the other ranks of the latest rank's node wait for it on average, and what those of other nodes do.
sizes AS (
    SELECT n.node, count(*) AS n FROM _rank_shares AS r JOIN ranks AS n ON r.rank = n.rank GROUP BY n.node
),
around AS (
    SELECT b.node,
        sum(w.wait_ns) FILTER (v.node = b.node) / nullif(any_value(z.n) - 1, 0) AS mate_ns,
        sum(w.wait_ns) FILTER (v.node <> b.node) / nullif((SELECT sum(n) FROM sizes) - any_value(z.n), 0) AS other_ns
    FROM by_node AS b
    JOIN sizes AS z ON b.node = z.node
    JOIN counted AS w ON b.rank = w.culprit_rank
    JOIN ranks AS v ON w.rank = v.rank
    GROUP BY b.node
),
-- One rank alone, where it makes up most of its node's lateness and its neighbours are on time; else the node as a whole.
late AS (
    SELECT b.node, b.rank,
        b.own_ns >= 0.6 * b.wait_ns AND (z.n = 1 OR coalesce(coalesce(a.mate_ns, 0) >= 0.5 * a.other_ns, true)) AS alone,
        CASE WHEN alone THEN b.own_ns ELSE b.wait_ns END AS wait_ns,
        100 * CASE WHEN alone THEN b.own_ns ELSE b.wait_ns END / w.wall_ns AS share
    FROM by_node AS b
    JOIN sizes AS z ON b.node = z.node
    LEFT JOIN around AS a ON b.node = a.node
    CROSS JOIN wall AS w
    WHERE share >= threshold('straggler', 'share')
),
late_steps AS (
    SELECT l.node, w.step, list(DISTINCT w.rank) FILTER (w.wait_ns > 0) AS victims
    FROM late AS l
    JOIN ranks AS r ON l.node = r.node
    JOIN counted AS w ON w.culprit_rank = r.rank AND (NOT l.alone OR w.culprit_rank = l.rank)
    JOIN walls AS a ON w.step = a.step
    GROUP BY l.node, w.step
    HAVING 100 * sum(w.wait_ns) >= threshold('straggler', 'share') * any_value(a.wall_ns)
),
persistence AS (
    SELECT node, count(*) AS steps, len(list_distinct(flatten(list(victims)))) AS victims FROM late_steps GROUP BY node
),
doing AS (
    SELECT l.node, d.category
    FROM delay_cost AS d
    JOIN _counted_steps AS c ON d.victim_rank = c.rank AND d.step = c.step
    JOIN ranks AS r ON d.culprit_rank = r.rank
    JOIN late AS l ON l.node = r.node AND (NOT l.alone OR d.culprit_rank = l.rank)
    GROUP BY l.node, d.category
    QUALIFY row_number() OVER (PARTITION BY l.node ORDER BY sum(d.delay_ns) DESC, d.category) = 1
),
shares AS (
    SELECT r.rank, n.node, c.category, 100 * coalesce(t.time_ns, 0) / r.wall_ns AS share
    FROM _rank_shares AS r
    JOIN ranks AS n ON r.rank = n.rank
    CROSS JOIN (SELECT DISTINCT category FROM _typical_time WHERE category NOT IN ('wait_straggler', 'wait_pipeline')) AS c
    LEFT JOIN _typical_time AS t ON r.rank = t.rank AND c.category = t.category
),
-- What the late ranks spend most more of their steps in than the others do; NULL where there are no others.
more AS (
    SELECT l.node, s.category,
        avg(s.share) FILTER (s.node = l.node AND (NOT l.alone OR s.rank = l.rank))
        - median(s.share) FILTER (NOT (s.node = l.node AND (NOT l.alone OR s.rank = l.rank))) AS points
    FROM late AS l
    CROSS JOIN shares AS s
    GROUP BY l.node, s.category
    QUALIFY row_number() OVER (PARTITION BY l.node ORDER BY points DESC NULLS LAST, s.category) = 1
),
named AS (
    SELECT l.*, p.steps, p.victims, d.category AS meanwhile, m.points,
        -- It explains the wait where it is half of it at least.
        CASE WHEN m.points >= l.share / 2 THEN m.category WHEN m.points IS NULL THEN d.category END AS cause
    FROM late AS l
    JOIN persistence AS p ON l.node = p.node
    LEFT JOIN doing AS d ON l.node = d.node
    LEFT JOIN more AS m ON l.node = m.node
)
SELECT
    CASE WHEN l.share >= threshold('straggler', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    l.rank, l.node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'waits for this rank (or node), % of the wall time of all ranks' AS measure,
    l.share AS value,
    threshold('straggler', 'share') AS threshold,
    'inferred' AS evidence,
    printf('%d %s for %s in %d of %d ' || step_word() || 's, %.1f ms in all; meanwhile it was mostly in %s%s (%s).',
        l.victims, CASE l.victims WHEN 1 THEN 'rank waits' ELSE 'ranks wait' END,
        CASE WHEN l.alone THEN printf('rank %d on %s', l.rank, l.node) ELSE printf('the ranks of %s', l.node) END,
        l.steps, s.n, l.wait_ns / 1e6, coalesce(l.meanwhile, 'unknown'),
        CASE WHEN l.cause <> l.meanwhile
            THEN printf(', late by what it spends %.1f points of its ' || step_word() || ' more than the others in: %s', l.points, l.cause)
            ELSE '' END,
        CASE
            WHEN l.cause IS NULL AND l.points IS NOT NULL
                THEN 'no category takes that much more of its ' || step_word() || ' than of the others'': uneven in turn, or the last of many'
            WHEN l.cause = 'compute' THEN 'slower kernels or more work'
            WHEN l.cause IN ('host_data') THEN 'late data'
            WHEN starts_with(l.cause, 'host_') OR l.cause IN ('gpu_dependency', 'idle_other') THEN 'late launches'
            WHEN l.cause IN ('memcpy') THEN 'copies'
            WHEN l.cause = 'wait_sender' THEN 'messages of others that reach it late'
            ELSE 'its own network'
        END) AS text,
    'excluded: clock error (waits within the bound of the pair are left out), unusable ranks (waits are lower bounds); '
        || CASE WHEN coalesce(l.cause, 'compute') = 'compute' THEN 'not excluded: unequal work by design (tokens per expert, sequence lengths)'
            ELSE 'not excluded: the same cause on ranks that were not captured' END AS confounders,
    CASE
        WHEN l.cause = 'compute' THEN 'compare its kernel durations with another rank: clocks, power cap, tokens'
        WHEN l.cause IS NULL AND l.points IS NOT NULL
            THEN 'look at the ranks that wait: where most are as late as it, something lets those few be early'
        WHEN l.cause = 'host_data' THEN 'look at its data loader and storage'
        WHEN l.cause = 'ctl_cpu' OR l.cause IN (SELECT category FROM categories WHERE comm)
            THEN 'look at its communication: what holds up its messages makes it late for the next operation'
        ELSE 'look at its launch thread: report --rank shows its own breakdown'
    END AS next
FROM named AS l
CROSS JOIN n_steps AS s
WHERE 100 * l.steps >= threshold('straggler', 'persistence') * s.n;
