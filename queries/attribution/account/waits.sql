-- waits: what a rank waited for whom in each step, net of compute.
--
-- Inputs: _wait_pieces
-- Output: the columns of the lake table `waits`
-- Assumes: a row is one of (rank, step, operation, culprit, kind); what clock error hides is a row of its own.
-- Example: SELECT culprit_rank, sum(wait_ns) FROM waits WHERE NOT within_clock_error GROUP BY ALL ORDER BY 2 DESC;
CREATE OR REPLACE TEMP TABLE waits AS
SELECT rank, step, comm_id, seq, op, kind, culprit_rank,
    min(start_ns) AS start_ns, max(end_ns) AS end_ns, sum(end_ns - start_ns)::BIGINT AS wait_ns,
    max(clock_error_ns) AS clock_error_ns, within_clock_error
FROM _wait_pieces
GROUP BY rank, step, op_id, comm_id, seq, op, kind, culprit_rank, within_clock_error
ORDER BY rank, start_ns, culprit_rank, kind, op_id;
