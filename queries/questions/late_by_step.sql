-- late_by_step: the rank that the others waited for most, step by step, and what it did.
--
-- Inputs: delay_matrix
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run            VARCHAR  run
--   step           BIGINT   step
--   culprit_rank   BIGINT   rank that is charged most
--   delay_ns       BIGINT   time charged, over all victims, ns
--   n_victims      BIGINT   ranks that waited
--   category       VARCHAR  what it did for the longest part of it
--   share_percent  DOUBLE   part of all delay of the step, %
-- Example: FROM late_by_step() WHERE share_percent > 80;
CREATE OR REPLACE MACRO late_by_step(in_run := NULL) AS TABLE
SELECT d.run, d.step, d.culprit_rank, d.delay_ns, d.victims AS n_victims, d.category,
    100.0 * d.delay_ns / nullif(sum(d.delay_ns) OVER (PARTITION BY d.run, d.step), 0) AS share_percent
FROM delay_matrix AS d
WHERE in_run IS NULL OR d.run = in_run
QUALIFY d.first_cause = 1
ORDER BY d.run, d.step;
