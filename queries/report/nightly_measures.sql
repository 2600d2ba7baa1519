-- nightly_measures: what the nightly batch keeps of each run: shares of its time, and the mean step time.
--
-- Inputs: mfu, steps, ranks, findings
-- Output:
--   run      VARCHAR  run id
--   measure  VARCHAR  category (and mfu, compute_loss, step_ns, ranks), finding:CODE
--   value    DOUBLE   points of 100; step_ns: mean over ranks and counted steps, ns, absent where these are windows; ranks: with steps; findings: 1
-- Assumes: the lake's views, with the column run. A run without an exact MFU has compute in place of mfu and
--          compute_loss. Where no step is complete all count, as in reports. Sorted: (run, measure) is unique.
CREATE OR REPLACE TEMP TABLE nightly_measures AS
WITH chosen AS (
  SELECT run, rank, source, end_ns - start_ns AS wall_ns, coalesce(complete AND NOT outlier, false) AS good
  FROM steps
  WHERE end_ns > start_ns
), counted AS (
  SELECT run, rank, source, wall_ns, good OR NOT bool_or(good) OVER (PARTITION BY run) AS counts
  FROM chosen
)
SELECT run, category AS measure, sum(points) AS value FROM mfu WHERE scope = 'run' GROUP BY run, category
UNION ALL
SELECT run, 'step_ns', avg(wall_ns) FROM counted WHERE counts GROUP BY run HAVING NOT coalesce(bool_or(source = 'window'), false)
UNION ALL
SELECT run, 'ranks', count(DISTINCT rank) FROM counted GROUP BY run
UNION ALL
SELECT DISTINCT run, 'finding:' || code, 1.0 FROM findings WHERE severity <> 'info'
ORDER BY run, measure;
