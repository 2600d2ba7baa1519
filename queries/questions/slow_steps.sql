-- slow_steps: the slowest steps, and the category that grew most against the rank's usual step.
--
-- Inputs: step_walls, breakdown
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
--   top     BIGINT   rows of each run
-- Output:
--   run        VARCHAR  run
--   rank       BIGINT   rank
--   step       BIGINT   step
--   wall_ns    BIGINT   its duration, ns
--   usual_ns   BIGINT   median duration of the rank's counted steps, ns
--   excess_ns  BIGINT   wall_ns - usual_ns
--   category   VARCHAR  category that grew most against its median; NULL without a breakdown
--   grown_ns   BIGINT   by how much it grew, ns
-- Assumes: outliers are shown too, cut steps are not; a category that a step lacks counts as 0 in the medians; medians are lower medians.
-- Example: FROM slow_steps(top := 5);
CREATE OR REPLACE MACRO slow_steps(in_run := NULL, top := 20) AS TABLE
WITH walls AS (
    SELECT w.run, w.rank, w.step, w.wall_ns, w.counted,
        quantile_disc(w.wall_ns, 0.5) FILTER (w.counted) OVER (PARTITION BY w.run, w.rank) AS usual_ns
    FROM step_walls AS w
    JOIN steps AS s ON w.run = s.run AND w.rank = s.rank AND w.step = s.step AND w.start_ns = s.start_ns
    WHERE (in_run IS NULL OR w.run = in_run) AND (w.counted OR s.complete)
),
cells AS (
    SELECT b.run, b.rank, b.step, b.category, sum(b.attributed_ns)::BIGINT AS time_ns
    FROM breakdown AS b
    WHERE in_run IS NULL OR b.run = in_run
    GROUP BY ALL
),
kinds AS (
    SELECT DISTINCT c.run, c.rank, c.category FROM cells AS c
),
filled AS (
    SELECT w.run, w.rank, w.step, w.counted, k.category, coalesce(c.time_ns, 0) AS time_ns
    FROM walls AS w
    JOIN kinds AS k ON w.run = k.run AND w.rank = k.rank
    LEFT JOIN cells AS c ON w.run = c.run AND w.rank = c.rank AND w.step = c.step AND k.category = c.category
),
grown AS (
    SELECT f.run, f.rank, f.step, f.category,
        f.time_ns - quantile_disc(f.time_ns, 0.5) FILTER (f.counted) OVER (PARTITION BY f.run, f.rank, f.category) AS grown_ns
    FROM filled AS f
),
most AS (
    SELECT g.run, g.rank, g.step, g.category, g.grown_ns
    FROM grown AS g
    QUALIFY row_number() OVER (PARTITION BY g.run, g.rank, g.step ORDER BY g.grown_ns DESC, g.category) = 1
)
SELECT w.run, w.rank, w.step, w.wall_ns, w.usual_ns, w.wall_ns - w.usual_ns AS excess_ns, m.category, m.grown_ns
FROM walls AS w
LEFT JOIN most AS m ON w.run = m.run AND w.rank = m.rank AND w.step = m.step
QUALIFY row_number() OVER (PARTITION BY w.run ORDER BY w.wall_ns DESC, w.rank, w.step) <= top
ORDER BY w.run, w.wall_ns DESC, w.rank, w.step;
