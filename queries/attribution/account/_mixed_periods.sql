-- _mixed_periods: busy periods of the GPU in which operations of several kinds overlap.
--
-- Inputs: _gpu_periods
-- Output:
--   start_ns  BIGINT  start
--   end_ns    BIGINT  end
CREATE OR REPLACE TEMP VIEW _mixed_periods AS
SELECT start_ns, end_ns FROM _gpu_periods WHERE kinds = 0 AND end_ns > start_ns;
