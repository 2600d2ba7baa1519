-- drift: what a step's time goes to, run by run, and how it changed against the run before.
--
-- Inputs: step_walls, breakdown
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run            VARCHAR  run
--   started_ns     BIGINT   first counted step, ns on the run clock
--   started_day    VARCHAR  its day, UTC, yyyy-mm-dd
--   category       VARCHAR  category; step: the whole step
--   n_steps        BIGINT   counted steps of all ranks
--   per_step_ns    DOUBLE   mean time in a step of a rank, ns
--   before_ns      DOUBLE   the same in the run before; NULL for the first
--   drift_ns       DOUBLE   per_step_ns - before_ns
--   drift_percent  DOUBLE   drift_ns over before_ns, %; NULL where that is 0
-- Assumes: runs are ordered by their start. With in_run, that run against the one before it. A category that one of them lacks counts as 0.
-- Example: FROM drift() WHERE category = 'step' ORDER BY started_ns;
CREATE OR REPLACE MACRO drift(in_run := NULL) AS TABLE
WITH counted AS (
    SELECT w.run, w.rank, w.step, w.start_ns, w.wall_ns FROM step_walls AS w WHERE w.counted
),
sizes AS (
    SELECT c.run, min(c.start_ns) AS started_ns, count(*) AS n_steps, sum(c.wall_ns) AS wall_ns FROM counted AS c GROUP BY c.run
),
ordered AS (
    SELECT z.*, lag(z.run) OVER (ORDER BY z.started_ns, z.run) AS run_before FROM sizes AS z
),
parts AS (
    SELECT b.run, b.category, sum(b.attributed_ns) AS time_ns
    FROM breakdown AS b
    JOIN (SELECT DISTINCT c.run, c.rank, c.step FROM counted AS c) AS c ON b.run = c.run AND b.rank = c.rank AND b.step = c.step
    GROUP BY b.run, b.category
    UNION ALL
    SELECT z.run, 'step', z.wall_ns FROM sizes AS z
),
kinds AS (
    SELECT o.run, o.run_before, p.category FROM ordered AS o JOIN parts AS p ON o.run = p.run
    UNION
    SELECT o.run, o.run_before, p.category FROM ordered AS o JOIN parts AS p ON o.run_before = p.run
),
means AS (
    SELECT o.run, o.started_ns, k.category, o.n_steps, coalesce(now.time_ns, 0) / o.n_steps AS per_step_ns,
        CASE WHEN k.run_before IS NOT NULL THEN coalesce(old.time_ns, 0) / b.n_steps END AS before_ns
    FROM kinds AS k
    JOIN ordered AS o ON k.run = o.run
    LEFT JOIN ordered AS b ON k.run_before = b.run
    LEFT JOIN parts AS now ON k.run = now.run AND k.category = now.category
    LEFT JOIN parts AS old ON k.run_before = old.run AND k.category = old.category
)
SELECT m.run, m.started_ns, strftime(make_timestamp(m.started_ns // 1000), '%Y-%m-%d') AS started_day, m.category, m.n_steps,
    m.per_step_ns, m.before_ns, m.per_step_ns - m.before_ns AS drift_ns,
    100.0 * (m.per_step_ns - m.before_ns) / nullif(m.before_ns, 0) AS drift_percent
FROM means AS m
WHERE in_run IS NULL OR m.run = in_run
ORDER BY m.started_ns, m.run, m.per_step_ns DESC, m.category;
