-- exposed_by_step: exposed communication of each step of each rank, and its largest part.
--
-- Inputs: breakdown, step_walls, is_exposed_comm
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run              VARCHAR  run
--   rank             BIGINT   rank
--   step             BIGINT   step
--   wall_ns          BIGINT   duration of the step, ns
--   exposed_ns       BIGINT   exposed communication, ns
--   exposed_percent  DOUBLE   of the step's duration, %
--   category         VARCHAR  its largest part; NULL without any
-- Example: FROM exposed_by_step() ORDER BY exposed_percent DESC;
CREATE OR REPLACE MACRO exposed_by_step(in_run := NULL) AS TABLE
WITH parts AS (
    SELECT b.run, b.rank, b.step, b.category, sum(b.attributed_ns)::BIGINT AS time_ns
    FROM breakdown AS b
    WHERE (in_run IS NULL OR b.run = in_run) AND is_exposed_comm(b.category) AND b.attributed_ns > 0
    GROUP BY b.run, b.rank, b.step, b.category
),
sums AS (
    SELECT p.run, p.rank, p.step, sum(p.time_ns)::BIGINT AS exposed_ns,
        first(p.category ORDER BY p.time_ns DESC, p.category) AS category
    FROM parts AS p
    GROUP BY p.run, p.rank, p.step
)
SELECT w.run, w.rank, w.step, w.wall_ns, coalesce(s.exposed_ns, 0) AS exposed_ns,
    100.0 * coalesce(s.exposed_ns, 0) / w.wall_ns AS exposed_percent, s.category
FROM step_walls AS w
LEFT JOIN sums AS s ON w.run = s.run AND w.rank = s.rank AND w.step = s.step
WHERE in_run IS NULL OR w.run = in_run
ORDER BY w.run, w.rank, w.start_ns, w.step;
