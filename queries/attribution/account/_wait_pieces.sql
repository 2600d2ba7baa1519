-- _wait_pieces: the instants of a rank's waits that the sweep gave to waiting, or that clock error hides.
--
-- Inputs: _wait_windows, segments
-- Output:
--   rank                BIGINT   rank that waits
--   step                BIGINT   its step
--   op_id               BIGINT   its operation (_operations)
--   comm_id             VARCHAR  communicator
--   seq                 BIGINT   sequence number in the communicator
--   op                  VARCHAR  operation
--   kind                VARCHAR  straggler, pipeline, sender or credit
--   culprit_rank        BIGINT   rank that is waited for
--   window_start_ns     BIGINT   start of the window that the piece is of
--   clock_error_ns      BIGINT   bound of the error between the two ranks' clocks
--   within_clock_error  BOOLEAN  the peer's lateness can't be told from clock error
--   start_ns            BIGINT   start
--   end_ns              BIGINT   end, exclusive
-- Assumes: one rank; segments are disjoint. A window's segments are consecutive, so two lookups give their numbers
--   and no range join is needed. A wait on an arrival has every instant but compute's: the sweep puts it next.
CREATE OR REPLACE TEMP TABLE _wait_pieces AS
WITH numbered AS (
    SELECT rank, step, start_ns, end_ns, category, row_number() OVER (ORDER BY start_ns) AS n
    FROM segments
),
reach AS (
    SELECT w.*, row_number() OVER () AS window_id, coalesce(a.n, 1) AS first_n, b.n AS last_n
    FROM _wait_windows AS w
    ASOF LEFT JOIN numbered AS a ON a.rank = w.rank AND w.start_ns >= a.start_ns
    ASOF JOIN numbered AS b ON b.rank = w.rank AND w.end_ns > b.start_ns
),
within AS (
    SELECT * EXCLUDE (first_n, last_n), unnest(range(first_n, last_n + 1)) AS n FROM reach
)
SELECT w.rank, s.step, w.op_id, w.comm_id, w.seq, w.op, w.kind, w.culprit_rank, w.start_ns AS window_start_ns,
    w.clock_error_ns, w.within_clock_error,
    greatest(w.start_ns, s.start_ns) AS start_ns, least(w.end_ns, s.end_ns) AS end_ns
FROM within AS w
JOIN numbered AS s USING (n)
WHERE s.end_ns > w.start_ns
    AND CASE
        WHEN w.within_clock_error THEN s.category <> 'compute'
        WHEN w.kind IN ('straggler', 'pipeline') THEN s.category IN ('wait_straggler', 'wait_pipeline')
        ELSE s.category = 'wait_' || w.kind
    END
ORDER BY w.start_ns, start_ns, w.window_id;
