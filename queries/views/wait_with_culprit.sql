-- wait_with_culprit: each wait with where its culprit runs and what the culprit did for the longest part of the step's delay.
--
-- Inputs: waits, ranks, delay_cost
-- Output:
--   run                 VARCHAR  run
--   rank                BIGINT   rank that waited
--   step                BIGINT   step
--   op                  VARCHAR  operation
--   kind                VARCHAR  straggler, pipeline, sender or credit
--   start_ns            BIGINT   start, ns on the run clock
--   end_ns              BIGINT   end, ns on the run clock
--   wait_ns             BIGINT   the wait, net of compute, ns
--   within_clock_error  BOOLEAN  too short to be told from clock error: charged to nobody
--   culprit_rank        BIGINT   rank that was waited for
--   culprit_node        VARCHAR  its node
--   culprit_gpu_index   BIGINT   its device on the node
--   culprit_category    VARCHAR  what it did for the longest part while this rank waited in the step; NULL: not charged
--   culprit_ns          BIGINT   how long it did that, ns
-- Assumes: delay_cost is summed over a step, so that all waits of a rank for one culprit in a step name one category.
-- Example: SELECT culprit_rank, culprit_category, sum(wait_ns) FROM wait_with_culprit GROUP BY ALL ORDER BY 3 DESC;
CREATE OR REPLACE VIEW wait_with_culprit AS
WITH doing AS (
    SELECT run, victim_rank, culprit_rank, step, category, sum(delay_ns)::BIGINT AS delay_ns
    FROM delay_cost
    WHERE hop = 0
    GROUP BY ALL
),
foremost AS (
    SELECT run, victim_rank, culprit_rank, step, category, delay_ns
    FROM doing
    QUALIFY row_number() OVER (PARTITION BY run, victim_rank, culprit_rank, step ORDER BY delay_ns DESC, category) = 1
),
places AS (
    SELECT run, rank, min(node) AS node, min(gpu_index) AS gpu_index FROM ranks GROUP BY run, rank
)
SELECT w.run, w.rank, w.step, w.op, w.kind, w.start_ns, w.end_ns, w.wait_ns, w.within_clock_error, w.culprit_rank,
    p.node AS culprit_node, p.gpu_index AS culprit_gpu_index,
    CASE WHEN NOT w.within_clock_error THEN f.category END AS culprit_category,
    CASE WHEN NOT w.within_clock_error THEN f.delay_ns END AS culprit_ns
FROM waits AS w
LEFT JOIN places AS p ON w.run = p.run AND w.culprit_rank = p.rank
LEFT JOIN foremost AS f
    ON w.run = f.run AND w.rank = f.victim_rank AND w.culprit_rank = f.culprit_rank AND w.step = f.step;
