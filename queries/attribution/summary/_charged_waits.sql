-- _charged_waits: the waits beyond clock error, each charged to the rank that it waited for: hop 0.
--
-- Inputs: _wait_pieces
-- Output:
--   victim_rank   BIGINT    rank that waited
--   step          BIGINT    its step
--   culprit_rank  BIGINT    rank charged at this hop
--   start_ns      BIGINT    start of the charged time
--   end_ns        BIGINT    its end, exclusive
--   hop           BIGINT    0
--   path          BIGINT[]  ranks on the way so far
CREATE OR REPLACE TEMP TABLE _charged_waits AS
SELECT rank AS victim_rank, step, culprit_rank, start_ns, end_ns, 0::BIGINT AS hop, [rank, culprit_rank] AS path
FROM _wait_pieces
WHERE NOT within_clock_error;
