-- _cells: time by step and by what holds.
--
-- Inputs: _pieces
-- Output:
--   ordinal  BIGINT  the step, by place in time
--   mask     BIGINT  bits of the categories that hold
--   time_ns  BIGINT  for how long
CREATE OR REPLACE TEMP TABLE _cells AS
SELECT ordinal, mask, sum(end_ns - start_ns)::BIGINT AS time_ns
FROM _pieces
GROUP BY ordinal, mask;
