-- report_waits: who waited for whom, by kind and operation, in the steps of the report.
--
-- Inputs: waits, report_steps
-- Output:
--   rank                BIGINT   rank that waited
--   culprit_rank        BIGINT   rank that was waited for
--   kind                VARCHAR  straggler, pipeline, sender or credit
--   op                  VARCHAR  operation
--   within_clock_error  BOOLEAN  too short to be told from clock error: not charged
--   n                   BIGINT   waits
--   wait_ns             HUGEINT  time in all, net of compute, ns
--   max_ns              BIGINT   longest, ns
--   max_step            BIGINT   step of the longest; the first of equals
--   clock_error_ns      BIGINT   largest clock error bound among them, ns
CREATE OR REPLACE TEMP TABLE report_waits AS
SELECT w.rank, w.culprit_rank, w.kind, w.op, coalesce(w.within_clock_error, false) AS within_clock_error, count(*) AS n,
  sum(w.wait_ns) AS wait_ns, max(w.wait_ns) AS max_ns, first(w.step ORDER BY w.wait_ns DESC, w.step) AS max_step,
  max(w.clock_error_ns) AS clock_error_ns
FROM waits AS w
JOIN report_steps AS s ON s.rank = w.rank AND s.step = w.step
GROUP BY ALL
ORDER BY wait_ns DESC, w.rank, w.culprit_rank, w.kind, w.op, within_clock_error;
