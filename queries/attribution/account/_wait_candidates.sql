-- _wait_candidates: when a rank's waits on peers hold, for the sweep to put in order.
--
-- Inputs: _wait_windows
-- Output:
--   start_ns   BIGINT   start
--   end_ns     BIGINT   end, exclusive
--   category   VARCHAR  wait_straggler, wait_pipeline or wait_sender
--   evidence   VARCHAR  inferred: by a rule over measured arrivals
-- Assumes: one rank. What clock error can explain claims nothing. Credits are a network candidate, not one of these.
CREATE OR REPLACE TEMP TABLE _wait_candidates AS
SELECT start_ns, end_ns, 'wait_' || kind AS category, 'inferred' AS evidence
FROM _wait_windows
WHERE NOT within_clock_error AND kind IN ('straggler', 'pipeline', 'sender')
ORDER BY start_ns, end_ns, category;
