-- step_times: percentiles of the step time of each rank.
--
-- Inputs: step_walls
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run      VARCHAR  run
--   rank     BIGINT   rank
--   n_steps  BIGINT   counted steps
--   min_ns   BIGINT   shortest, ns
--   p50_ns   BIGINT   median, ns
--   p90_ns   BIGINT   90th percentile, ns
--   p99_ns   BIGINT   99th percentile, ns
--   max_ns   BIGINT   longest, ns
-- Assumes: counted steps only; percentiles are nearest rank.
-- Example: FROM step_times();
CREATE OR REPLACE MACRO step_times(in_run := NULL) AS TABLE
SELECT w.run, w.rank, count(*) AS n_steps, min(w.wall_ns) AS min_ns, quantile_disc(w.wall_ns, 0.5) AS p50_ns,
    quantile_disc(w.wall_ns, 0.9) AS p90_ns, quantile_disc(w.wall_ns, 0.99) AS p99_ns, max(w.wall_ns) AS max_ns
FROM step_walls AS w
WHERE (in_run IS NULL OR w.run = in_run) AND w.counted
GROUP BY w.run, w.rank
ORDER BY w.run, w.rank;
