-- _local_times: a rank's own time, without exposed communication, at the ends of its collectives and of its steps.
--
-- Inputs: _operations, _participants, steps, segments, breakdown, categories
-- Output:
--   rank            BIGINT  this rank
--   op_id           BIGINT  operation whose participants are known; NULL for a step
--   step            BIGINT  step; NULL for an operation
--   level           BIGINT  of the parts of communication so many, in the order of categories.given_back, are its own too
--   start_ns        BIGINT  it arrives, or the step begins
--   end_ns          BIGINT  it ends
--   local_start_ns  BIGINT  start_ns less all exposed communication before it that is not its own
--   local_end_ns    BIGINT  end_ns less the same
-- Assumes: on a network that takes no time (level 0) a rank would reach these instants after so much of its own time, and
--   of what it has to wait for others. Communication hidden behind compute costs it nothing. ctl_cpu is divided as in
--   the step's breakdown, to the ns below.
CREATE OR REPLACE TEMP TABLE _local_times AS
WITH kept AS (
    SELECT
        b.step,
        coalesce(c.leaf_of, c.category)::category_name AS category,
        sum(b.attributed_ns)::HUGEINT AS whole_ns,
        coalesce(sum(b.attributed_ns) FILTER (c.given_back <= 1), 0)::HUGEINT AS kept_1_ns,
        coalesce(sum(b.attributed_ns) FILTER (c.given_back <= 2), 0)::HUGEINT AS kept_2_ns,
        coalesce(sum(b.attributed_ns) FILTER (c.given_back <= 3), 0)::HUGEINT AS kept_3_ns,
        coalesce(sum(b.attributed_ns) FILTER (c.given_back <= 4), 0)::HUGEINT AS kept_4_ns
    FROM breakdown AS b
    JOIN categories AS c ON b.category = c.category
    WHERE c.comm
    GROUP BY ALL
    HAVING sum(b.attributed_ns) > 0
),
taken AS (
    SELECT
        s.start_ns,
        s.end_ns - s.start_ns AS length_ns,
        [
            length_ns,
            length_ns - (length_ns * k.kept_1_ns // k.whole_ns)::BIGINT,
            length_ns - (length_ns * k.kept_2_ns // k.whole_ns)::BIGINT,
            length_ns - (length_ns * k.kept_3_ns // k.whole_ns)::BIGINT,
            length_ns - (length_ns * k.kept_4_ns // k.whole_ns)::BIGINT
        ] AS by_level
    FROM segments AS s
    JOIN kept AS k ON s.step = k.step AND s.category = k.category
),
exposed AS MATERIALIZED (
    SELECT
        level,
        start_ns,
        length_ns,
        taken_ns,
        sum(taken_ns) OVER (PARTITION BY level ORDER BY start_ns ROWS UNBOUNDED PRECEDING)::BIGINT - taken_ns AS before_ns
    FROM (SELECT start_ns, length_ns, unnest(range(len(by_level))) AS level, unnest(by_level) AS taken_ns FROM taken)
    WHERE taken_ns > 0
),
marks AS (
    SELECT m.*, l.level
    FROM (
        SELECT rank, op_id, NULL::BIGINT AS step, start_ns, end_ns FROM _operations SEMI JOIN _participants USING (op_id)
        UNION ALL
        SELECT rank, NULL, step, start_ns, end_ns FROM steps
    ) AS m
    CROSS JOIN range(5) AS l (level)
)
SELECT
    m.*,
    m.start_ns - coalesce(a.before_ns + least(m.start_ns - a.start_ns, a.length_ns)::HUGEINT * a.taken_ns // a.length_ns, 0)::BIGINT
        AS local_start_ns,
    m.end_ns - coalesce(b.before_ns + least(m.end_ns - b.start_ns, b.length_ns)::HUGEINT * b.taken_ns // b.length_ns, 0)::BIGINT
        AS local_end_ns
FROM marks AS m
ASOF LEFT JOIN exposed AS a ON m.level = a.level AND m.start_ns >= a.start_ns
ASOF LEFT JOIN exposed AS b ON m.level = b.level AND m.end_ns >= b.start_ns;
