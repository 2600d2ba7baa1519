-- nsys_at: a time of the export on the capture's clock.
--
-- Arguments: t BIGINT ns since the session's start, may be negative
-- Output:
--   BIGINT               ns since the UTC epoch; ns since the session's start where the file has no start time
-- Assumes: variable nsys_epoch_ns holds the session's start, or 0
-- Example: SELECT nsys_at(0);
CREATE OR REPLACE TEMP MACRO nsys_at(t) AS t + getvariable('nsys_epoch_ns')::BIGINT;
