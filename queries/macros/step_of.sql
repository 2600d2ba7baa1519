-- step_of: the step of a rank at an instant.
--
-- Inputs: steps
-- Arguments:
--   in_run    VARCHAR  run
--   of_rank   BIGINT   rank
--   at_ns     BIGINT   instant on the run clock, ns
-- Output: BIGINT: the step's number; NULL between steps
-- Assumes: steps of a rank do not overlap. For many instants at once an ASOF join with steps is faster.
-- Example: SELECT name, step_of(run, rank, start_ns) AS step FROM gpu_ops LIMIT 10;
CREATE OR REPLACE MACRO step_of(in_run, of_rank, at_ns) AS (
    SELECT max(s.step) FROM steps AS s
    WHERE s.run = in_run AND s.rank = of_rank AND s.start_ns <= at_ns AND at_ns < s.end_ns
);
