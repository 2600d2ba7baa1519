-- report_totals: step time over the counted steps, one row; no row where there is none.
--
-- Inputs: report_steps
-- Output:
--   rank_steps     BIGINT  counted (rank, step) pairs
--   ranks          BIGINT  ranks with a counted step
--   steps          BIGINT  distinct counted step numbers
--   all_steps      BIGINT  (rank, step) pairs in scope, counted or not
--   partial_steps  BIGINT  of these, not complete
--   outlier_steps  BIGINT  of these, complete and an outlier
--   wall_ns        HUGEINT sum of their durations, ns
--   mean_ns        DOUBLE  mean duration, ns
--   median_ns      BIGINT  median duration (lower middle), ns
--   min_ns         BIGINT  shortest, ns
--   max_ns         BIGINT  longest, ns
--   sources        VARCHAR where the steps come from, comma-separated
--   confidence     DOUBLE  lowest confidence of a counted step
CREATE OR REPLACE TEMP TABLE report_totals AS
SELECT count(*) FILTER (counted) AS rank_steps,
  count(DISTINCT rank) FILTER (counted) AS ranks,
  count(DISTINCT step) FILTER (counted) AS steps,
  count(*) AS all_steps,
  count(*) FILTER (NOT complete) AS partial_steps,
  count(*) FILTER (complete AND outlier) AS outlier_steps,
  sum(wall_ns) FILTER (counted) AS wall_ns,
  avg(wall_ns) FILTER (counted) AS mean_ns,
  quantile_disc(wall_ns, 0.5) FILTER (counted) AS median_ns,
  min(wall_ns) FILTER (counted) AS min_ns,
  max(wall_ns) FILTER (counted) AS max_ns,
  string_agg(DISTINCT source, ', ' ORDER BY source) FILTER (counted) AS sources,
  min(confidence) FILTER (counted) AS confidence
FROM report_steps
HAVING count(*) FILTER (counted) > 0;
