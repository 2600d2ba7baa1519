-- report_steps: the steps that a report is about, and which of them its statistics count.
--
-- Inputs: steps, report_scope
-- Output:
--   rank        BIGINT   rank
--   step        BIGINT   step
--   start_ns    BIGINT   start, ns on the run clock
--   end_ns      BIGINT   end, exclusive, ns on the run clock
--   wall_ns     BIGINT   duration, ns
--   source      VARCHAR  nvtx, inferred or window
--   confidence  DOUBLE   1 for nvtx, share of agreement for inferred, 0 for window
--   complete    BOOLEAN  both edges lie inside the capture and no loss touches it
--   outlier     BOOLEAN  much longer than its neighbours
--   counted     BOOLEAN  enters the statistics of this report
-- Assumes: report_scope has one row (rank, step), NULL for "all". A step that was asked for by number counts as it is;
--          where no step is complete all count, and the report says so.
CREATE OR REPLACE TEMP TABLE report_steps AS
WITH chosen AS (
  SELECT s.rank, s.step, s.start_ns, s.end_ns, s.end_ns - s.start_ns AS wall_ns, s.source, s.confidence,
    coalesce(s.complete, false) AS complete, coalesce(s.outlier, false) AS outlier,
    c.step IS NOT NULL AS asked_for
  FROM steps AS s, report_scope AS c
  WHERE s.end_ns > s.start_ns
    AND (c.rank IS NULL OR s.rank = c.rank)
    AND (c.step IS NULL OR s.step = c.step)
)
SELECT * EXCLUDE (asked_for),
  asked_for OR (complete AND NOT outlier) OR NOT bool_or(complete AND NOT outlier) OVER () AS counted
FROM chosen;
