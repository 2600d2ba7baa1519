-- wait_matrix: rank × rank, who waited how long for whom.
--
-- Inputs: waits
-- Output:
--   run           VARCHAR  run
--   rank          BIGINT   rank that waited
--   culprit_rank  BIGINT   rank that was waited for
--   kind          VARCHAR  straggler, pipeline, sender or credit
--   waits         BIGINT   waits beyond the clock error
--   wait_ns       BIGINT   their time, net of compute
--   doubtful      BIGINT   waits that clock error can explain
--   doubtful_ns   BIGINT   their time, which is charged to nobody
-- Example: PIVOT wait_matrix ON culprit_rank USING sum(wait_ns) GROUP BY rank;
CREATE OR REPLACE VIEW wait_matrix AS
SELECT run, rank, culprit_rank, kind,
    count(*) FILTER (WHERE NOT within_clock_error) AS waits,
    coalesce(sum(wait_ns) FILTER (WHERE NOT within_clock_error), 0)::BIGINT AS wait_ns,
    count(*) FILTER (WHERE within_clock_error) AS doubtful,
    coalesce(sum(wait_ns) FILTER (WHERE within_clock_error), 0)::BIGINT AS doubtful_ns
FROM waits
GROUP BY run, rank, culprit_rank, kind
ORDER BY run, rank, culprit_rank, kind;
