-- exposed: exposed communication of a step of a rank, ns: a communication kernel resides and nothing computes.
--
-- Inputs: breakdown
-- Arguments:
--   in_run    VARCHAR  run
--   of_rank   BIGINT   rank
--   of_step   BIGINT   step
-- Output: BIGINT: exposed communication, ns; NULL where the step has no breakdown
-- Assumes: the categories that hold only while a communication kernel resides are those of is_exposed_comm.
-- Example: SELECT rank, step, fmt_ns(exposed(run, rank, step)) FROM steps;
CREATE OR REPLACE MACRO exposed(in_run, of_rank, of_step) AS (
    SELECT sum(CASE WHEN is_exposed_comm(b.category) THEN b.attributed_ns ELSE 0 END)::BIGINT FROM breakdown AS b
    WHERE b.run = in_run AND b.rank = of_rank AND b.step = of_step
);
