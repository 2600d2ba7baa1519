-- _mfu_cells: wall time and time of each category, of the run, each rank, each step, and each step of a rank.
--
-- Inputs: breakdown, steps, _counted_steps
-- Output:
--   scope          VARCHAR  run, rank or step
--   rank           BIGINT   rank; NULL: all
--   step           BIGINT   step; NULL: all counted steps
--   category       VARCHAR  category
--   evidence       VARCHAR  its evidence
--   attributed_ns  HUGEINT  its time
--   wall_ns        HUGEINT  wall time of the scope over its ranks and steps
--   n_by_rank      MAP      rank → steps of it in the scope, where all of them are typical; NULL where one is not
-- Assumes: run and ranks sum over counted steps; a step's own rows are there for every step.
CREATE OR REPLACE TEMP TABLE _mfu_cells AS
WITH step_of AS (
    SELECT s.rank, s.step, s.end_ns - s.start_ns AS wall_ns, c.rank IS NOT NULL AS counted, coalesce(c.typical, false) AS typical
    FROM steps AS s
    LEFT JOIN _counted_steps AS c ON c.rank = s.rank AND c.step = s.step
    WHERE s.end_ns > s.start_ns
),
scoped AS (
    SELECT 'run' AS scope, NULL::BIGINT AS scope_rank, NULL::BIGINT AS scope_step, * FROM step_of WHERE counted
    UNION ALL
    SELECT 'rank', rank, NULL, * FROM step_of WHERE counted
    UNION ALL
    SELECT 'step', NULL, step, * FROM step_of
    UNION ALL
    SELECT 'step', rank, step, * FROM step_of
),
wall AS (
    SELECT
        scope,
        scope_rank,
        scope_step,
        sum(wall_ns) AS wall_ns,
        bool_and(typical) AS typical
    FROM scoped
    GROUP BY ALL
),
of_rank AS (
    SELECT scope, scope_rank, scope_step, map_from_entries(list((rank, n) ORDER BY rank)) AS n_by_rank
    FROM (SELECT scope, scope_rank, scope_step, rank, count(*) AS n FROM scoped GROUP BY ALL)
    GROUP BY scope, scope_rank, scope_step
),
time_of AS (
    SELECT s.scope, s.scope_rank, s.scope_step, b.category, b.evidence, sum(b.attributed_ns) AS attributed_ns
    FROM scoped AS s
    JOIN breakdown AS b ON b.rank = s.rank AND b.step = s.step
    GROUP BY ALL
)
SELECT
    t.scope,
    t.scope_rank AS rank,
    t.scope_step AS step,
    t.category,
    t.evidence,
    t.attributed_ns,
    w.wall_ns,
    CASE WHEN w.typical THEN n.n_by_rank END AS n_by_rank
FROM time_of AS t
JOIN wall AS w
    ON w.scope = t.scope
    AND w.scope_rank IS NOT DISTINCT FROM t.scope_rank
    AND w.scope_step IS NOT DISTINCT FROM t.scope_step
JOIN of_rank AS n
    ON n.scope = t.scope
    AND n.scope_rank IS NOT DISTINCT FROM t.scope_rank
    AND n.scope_step IS NOT DISTINCT FROM t.scope_step
ORDER BY t.scope, t.scope_rank NULLS FIRST, t.scope_step NULLS FIRST, t.category, t.evidence;
