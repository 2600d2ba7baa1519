-- breakdown: time of each category of each step, by evidence.
--
-- Inputs: _shares, _ctl_shares, _bounds, _step_order, categories, this_rank
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
-- Assumes: what of ctl_cpu has no leaf to go to (no occupancy is known) stays ctl_cpu. Exposed communication as a whole and
--   idle time as a whole are exact: a category can gain no more than the others of its group can lose. In communication
--   the order decides: what one may have too much or too little, those after it may have too little or too much.
--   A category that got nothing has a row where it may have had some.
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
    UNION ALL
    SELECT b.ordinal, b.category, c.evidence, 0, 0, 0
    FROM _bounds AS b
    JOIN categories AS c USING (category)
    WHERE b.more_ns > 0 AND (b.ordinal, b.category) NOT IN (
        SELECT (ordinal, category) FROM undivided UNION ALL SELECT (ordinal, category) FROM _ctl_shares
    )
),
spread AS (
    SELECT
        r.*,
        CASE
            WHEN c.comm OR r.category = 'trace_gap' THEN 'comm' WHEN c.group IN ('host', 'idle') THEN 'idle' ELSE r.category
        END AS pool,
        coalesce(b.less_ns, 0) + coalesce(sum(b.taken_ns) OVER before, 0) AS less_ns,
        coalesce(b.more_ns, 0) + coalesce(sum(b.given_ns) OVER before, 0) AS more_ns
    FROM row_of AS r
    JOIN categories AS c USING (category)
    LEFT JOIN _bounds AS b USING (ordinal, category)
    WINDOW before AS (
        PARTITION BY r.ordinal, c.comm OR r.category = 'trace_gap' ORDER BY c.priority RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    )
),
bounded AS (
    SELECT
        *,
        greatest(0, attributed_ns - less_ns) AS lo_ns,
        sum(least(attributed_ns, less_ns)) OVER (PARTITION BY ordinal, pool) AS loose_ns
    FROM spread
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
    b.lo_ns::BIGINT AS lo_ns,
    least(b.attributed_ns + b.more_ns, b.lo_ns + b.loose_ns)::BIGINT AS hi_ns
FROM bounded AS b
JOIN _step_order AS o USING (ordinal)
CROSS JOIN this_rank AS r
WHERE b.inclusive_ns > 0 OR least(b.more_ns, b.loose_ns) > 0;
