-- compare_steps: time of each category in each counted step, mean over the ranks: what the noise of a comparison is taken from.
--
-- Inputs: report_steps, report_cells
-- Output:
--   step      BIGINT   step
--   category  VARCHAR  category of attribution; 'step' is the whole step
--   mean_ns   DOUBLE   mean over the ranks that count the step, ns; 0 where the step has none of it
-- Assumes: ranks of one step wait for each other, so ranks are no independent samples: a step is one.
CREATE OR REPLACE TEMP TABLE compare_steps AS
WITH counted AS (
  SELECT step, count(*) AS ranks, sum(wall_ns) AS wall_ns
  FROM report_steps
  WHERE counted
  GROUP BY step
), sums AS (
  SELECT step, category, sum(attributed_ns) AS ns
  FROM report_cells
  WHERE counted
  GROUP BY step, category
), named AS (
  SELECT DISTINCT category FROM sums
)
SELECT c.step, n.category, coalesce(s.ns, 0) / c.ranks AS mean_ns
FROM counted AS c
CROSS JOIN named AS n
LEFT JOIN sums AS s ON s.step = c.step AND s.category = n.category
UNION ALL
SELECT step, 'step', wall_ns / ranks
FROM counted
ORDER BY category, step;
