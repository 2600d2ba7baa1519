-- _local_times: a rank's own time, without exposed communication, at the ends of its collectives and of its steps.
--
-- Inputs: _operations, _participants, steps, segments, categories
-- Output:
--   rank            BIGINT  this rank
--   op_id           BIGINT  operation whose participants are known; NULL for a step
--   step            BIGINT  step; NULL for an operation
--   start_ns        BIGINT  it arrives, or the step begins
--   end_ns          BIGINT  it ends
--   local_start_ns  BIGINT  start_ns less all exposed communication before it
--   local_end_ns    BIGINT  end_ns less all exposed communication before it
-- Assumes: on a network that takes no time a rank would reach these instants after so much of its own time, and of what
--   it has to wait for others. Communication hidden behind compute costs it nothing.
CREATE OR REPLACE TEMP TABLE _local_times AS
WITH exposed AS MATERIALIZED (
    SELECT start_ns, length_ns, sum(length_ns) OVER (ORDER BY start_ns ROWS UNBOUNDED PRECEDING)::BIGINT - length_ns AS before_ns
    FROM (
        SELECT s.start_ns, s.end_ns - s.start_ns AS length_ns
        FROM segments AS s
        JOIN categories AS c USING (category)
        WHERE c.comm
    )
),
marks AS (
    SELECT rank, op_id, NULL::BIGINT AS step, start_ns, end_ns FROM _operations SEMI JOIN _participants USING (op_id)
    UNION ALL
    SELECT rank, NULL, step, start_ns, end_ns FROM steps
)
SELECT
    m.*,
    m.start_ns - coalesce(a.before_ns + least(m.start_ns - a.start_ns, a.length_ns), 0) AS local_start_ns,
    m.end_ns - coalesce(b.before_ns + least(m.end_ns - b.start_ns, b.length_ns), 0) AS local_end_ns
FROM marks AS m
ASOF LEFT JOIN exposed AS a ON m.start_ns >= a.start_ns
ASOF LEFT JOIN exposed AS b ON m.end_ns >= b.start_ns;
