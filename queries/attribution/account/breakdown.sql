-- breakdown: time of each category of each step, by evidence.
--
-- Inputs: _shares, _ctl_shares, _bounds, _step_order, this_rank
-- Output:
--   rank           BIGINT   this rank
--   step           BIGINT   step
--   category       VARCHAR  category; ctl_cpu by its leaves
--   evidence       VARCHAR  how it is known
--   attributed_ns  BIGINT   time that the sweep gave it; over a step they add up to its wall time
--   exclusive_ns   BIGINT   time when only it held; NULL for leaves of ctl_cpu
--   inclusive_ns   BIGINT   time when it held at all
--   hidden_ns      BIGINT   inclusive - attributed
--   lo_ns          BIGINT   lower bound of attributed_ns; equal to it where it is exact
--   hi_ns          BIGINT   upper bound of attributed_ns; equal to it where it is exact
-- Assumes: what of ctl_cpu has no leaf to go to (no occupancy is known) stays ctl_cpu.
CREATE OR REPLACE TEMP TABLE breakdown AS
WITH undivided AS (
    SELECT
        s.ordinal,
        s.category,
        s.evidence,
        s.attributed_ns - coalesce(d.attributed_ns, 0) AS attributed_ns,
        s.exclusive_ns,
        s.inclusive_ns - coalesce(d.attributed_ns, 0) AS inclusive_ns,
        d.attributed_ns IS NOT NULL AS divided
    FROM _shares AS s
    LEFT JOIN (
        SELECT ordinal, 'ctl_cpu' AS category, evidence, sum(attributed_ns)::BIGINT AS attributed_ns
        FROM _ctl_shares
        GROUP BY ordinal, evidence
    ) AS d USING (ordinal, category, evidence)
),
row_of AS (
    SELECT
        ordinal,
        category,
        evidence,
        attributed_ns,
        least(exclusive_ns, attributed_ns) AS exclusive_ns,
        inclusive_ns
    FROM undivided
    WHERE NOT divided OR attributed_ns > 0
    UNION ALL
    SELECT ordinal, category, evidence, attributed_ns, NULL, inclusive_ns FROM _ctl_shares
)
SELECT
    r.rank,
    o.step,
    b.category,
    b.evidence,
    b.attributed_ns,
    b.exclusive_ns,
    b.inclusive_ns,
    b.inclusive_ns - b.attributed_ns AS hidden_ns,
    greatest(0, b.attributed_ns - coalesce(floor(b.attributed_ns * e.less_part), 0) - CASE
        WHEN e.category IS NULL THEN 0
        ELSE coalesce(e.less_ns, b.attributed_ns)
    END)::BIGINT AS lo_ns,
    greatest(b.attributed_ns, least(
        o.end_ns - o.start_ns,
        b.attributed_ns + coalesce(ceil(b.attributed_ns * e.more_part), 0) + coalesce(e.more_ns, 0)
    ))::BIGINT AS hi_ns
FROM row_of AS b
JOIN _step_order AS o USING (ordinal)
LEFT JOIN _bounds AS e USING (ordinal, category)
CROSS JOIN this_rank AS r;
