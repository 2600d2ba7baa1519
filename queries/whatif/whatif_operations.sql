-- whatif_operations: communication windows of the replayed steps, numbered within the step.
--
-- Inputs: gpu_ops, steps, whatif_steps, segments, categories
-- Output:
--   rank         BIGINT   rank
--   step         BIGINT   step
--   op           BIGINT   ordinal of the window in the step, from 0
--   name         VARCHAR  operation
--   start_ns     BIGINT   start, ns
--   end_ns       BIGINT   end, ns
--   exposed_ns   BIGINT   of it, exposed communication, waits for peers included
-- Assumes: a window begins where no earlier communication kernel of the rank is still resident.
CREATE OR REPLACE TEMP TABLE whatif_operations AS
WITH spans AS (
    SELECT s.rank, s.step, s.start_ns, s.end_ns FROM steps AS s JOIN whatif_steps AS w ON s.step = w.step
),
kernels AS (
    SELECT g.rank, s.step, g.start_ns, least(g.end_ns, s.end_ns) AS end_ns, g.comm_op
    FROM (
        FROM gpu_ops
        WHERE
            op_class = 'comm' AND end_ns > start_ns
            AND start_ns >= (SELECT min(start_ns) FROM spans) AND start_ns < (SELECT max(end_ns) FROM spans)
    ) AS g
    ASOF JOIN spans AS s ON g.rank = s.rank AND g.start_ns >= s.start_ns
    WHERE g.start_ns < s.end_ns
),
marked AS (
    SELECT *,
        start_ns > coalesce(max(end_ns) OVER (
            PARTITION BY rank, step ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), start_ns - 1) AS begins
    FROM kernels
),
numbered AS (
    SELECT *, count(*) FILTER (begins) OVER (
        PARTITION BY rank, step ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING
    ) - 1 AS op
    FROM marked
),
windows AS (
    SELECT rank, step, op, any_value(comm_op ORDER BY start_ns, end_ns) AS name, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM numbered
    GROUP BY rank, step, op
),
open AS (
    SELECT g.rank, g.step, g.start_ns, g.end_ns
    FROM segments AS g
    JOIN whatif_steps AS w ON g.step = w.step
    JOIN categories AS c ON g.category = c.category
    WHERE c.comm
),
exposed AS (
    SELECT w.rank, w.step, w.op, sum(o.end_ns - o.start_ns)::BIGINT AS exposed_ns
    FROM open AS o
    ASOF JOIN windows AS w ON o.rank = w.rank AND o.start_ns >= w.start_ns
    WHERE o.start_ns < w.end_ns AND o.step = w.step
    GROUP BY w.rank, w.step, w.op
)
SELECT w.rank, w.step, w.op, w.name, w.start_ns, w.end_ns, coalesce(e.exposed_ns, 0) AS exposed_ns
FROM windows AS w
LEFT JOIN exposed AS e ON w.rank = e.rank AND w.step = e.step AND w.op = e.op
ORDER BY w.rank, w.step, w.op;
