-- gpu_idle: why the GPU was idle, by rank.
--
-- Inputs: breakdown, step_walls
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run            VARCHAR  run
--   rank           BIGINT   rank
--   category       VARCHAR  gpu_dependency, a host category or idle_other
--   evidence       VARCHAR  how it is known
--   idle_ns        BIGINT   time in counted steps, ns
--   share_percent  DOUBLE   part of the rank's counted step time, %
-- Example: FROM gpu_idle() WHERE share_percent > 1;
CREATE OR REPLACE MACRO gpu_idle(in_run := NULL) AS TABLE
WITH walls AS (
    SELECT DISTINCT w.run, w.rank, w.step, w.wall_ns FROM step_walls AS w WHERE (in_run IS NULL OR w.run = in_run) AND w.counted
),
totals AS (
    SELECT w.run, w.rank, sum(w.wall_ns) AS wall_ns FROM walls AS w GROUP BY w.run, w.rank
)
SELECT b.run, b.rank, b.category, b.evidence, sum(b.attributed_ns)::BIGINT AS idle_ns,
    100.0 * sum(b.attributed_ns) / nullif(any_value(t.wall_ns), 0) AS share_percent
FROM breakdown AS b
JOIN (SELECT DISTINCT w.run, w.rank, w.step FROM walls AS w) AS s ON b.run = s.run AND b.rank = s.rank AND b.step = s.step
JOIN totals AS t ON b.run = t.run AND b.rank = t.rank
WHERE b.category LIKE 'host$_%' ESCAPE '$' OR b.category IN ('gpu_dependency', 'idle_other')
GROUP BY b.run, b.rank, b.category, b.evidence
ORDER BY b.run, b.rank, idle_ns DESC, b.category, b.evidence;
