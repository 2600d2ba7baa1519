-- _step_order: this rank's steps by place in time; numbers from the ranges' texts need not be in order.
--
-- Inputs: steps
-- Output:
--   ordinal   BIGINT  place in time, from 0
--   step      BIGINT  the step's number
--   start_ns  BIGINT  start
--   end_ns    BIGINT  end
CREATE OR REPLACE TEMP TABLE _step_order AS
SELECT row_number() OVER (ORDER BY start_ns, end_ns, step) - 1 AS ordinal, step, start_ns, end_ns
FROM steps;
