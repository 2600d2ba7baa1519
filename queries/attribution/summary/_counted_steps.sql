-- _counted_steps: the steps that statistics are made of.
--
-- Inputs: steps
-- Output:
--   rank     BIGINT   rank
--   step     BIGINT   step
--   wall_ns  BIGINT   duration
--   source   VARCHAR  nvtx, inferred or window
--   typical  BOOLEAN  complete and no outlier; where no step is, all are counted
CREATE OR REPLACE TEMP TABLE _counted_steps AS
SELECT rank, step, end_ns - start_ns AS wall_ns, source, complete AND NOT outlier AS typical
FROM steps
WHERE end_ns > start_ns
QUALIFY complete AND NOT outlier OR NOT bool_or(complete AND NOT outlier) OVER ();
