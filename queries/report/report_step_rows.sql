-- report_step_rows: each step over the ranks that have it: how long, who was slowest, and its mean breakdown.
--
-- Inputs: report_steps, report_cells
-- Output:
--   step           BIGINT   step
--   ranks          BIGINT   ranks that have the step
--   complete       BOOLEAN  complete on all of them
--   outlier        BOOLEAN  an outlier on any of them
--   counted        BOOLEAN  enters the statistics on any of them
--   source         VARCHAR  where the step comes from
--   median_ns      BIGINT   median duration over the ranks (lower middle), ns
--   min_ns         BIGINT   shortest, ns
--   max_ns         BIGINT   longest, ns
--   slowest_rank   BIGINT   rank with the longest; the lowest of equals
--   categories     MAP      mean time of each category over the ranks, ns
CREATE OR REPLACE TEMP TABLE report_step_rows AS
WITH times AS (
  SELECT step, count(*) AS ranks, bool_and(complete) AS complete, bool_or(outlier) AS outlier, bool_or(counted) AS counted,
    min(source) AS source, quantile_disc(wall_ns, 0.5) AS median_ns, min(wall_ns) AS min_ns, max(wall_ns) AS max_ns,
    first(rank ORDER BY wall_ns DESC, rank) AS slowest_rank
  FROM report_steps
  GROUP BY step
), parts AS (
  SELECT c.step, c.category, sum(c.attributed_ns) / any_value(t.ranks) AS mean_ns
  FROM report_cells AS c
  JOIN times AS t ON t.step = c.step
  GROUP BY c.step, c.category
), maps AS (
  SELECT step, map_from_entries(list((category, mean_ns) ORDER BY category)) AS categories
  FROM parts
  GROUP BY step
)
SELECT t.*, m.categories
FROM times AS t
LEFT JOIN maps AS m ON m.step = t.step
ORDER BY t.step;
