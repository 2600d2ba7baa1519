-- delay_matrix: rank × step, the delay that each rank caused in each step, by what it was doing.
--
-- Inputs: delay_cost
-- Output:
--   run           VARCHAR  run
--   step          BIGINT   step of those that waited
--   culprit_rank  BIGINT   rank that is charged, after following those that waited themselves
--   delay_ns      BIGINT   time charged, over all victims
--   victims       BIGINT   ranks that waited
--   worst_ns      BIGINT   the most that one of them waited
--   category      VARCHAR  what the culprit did for the longest part of it
--   first_cause   BIGINT   1 for the rank that is charged most in the step, then 2 and so on
-- Example: PIVOT delay_matrix ON step USING sum(delay_ns) GROUP BY culprit_rank;
CREATE OR REPLACE VIEW delay_matrix AS
WITH by_category AS (
    SELECT run, step, culprit_rank, category, sum(delay_ns)::BIGINT AS delay_ns FROM delay_cost GROUP BY ALL
),
by_victim AS (
    SELECT run, step, culprit_rank, victim_rank, sum(delay_ns)::BIGINT AS delay_ns FROM delay_cost GROUP BY ALL
),
foremost AS (
    SELECT run, step, culprit_rank, sum(delay_ns)::BIGINT AS delay_ns,
        first(category ORDER BY delay_ns DESC, category) AS category
    FROM by_category
    GROUP BY ALL
),
victims AS (
    SELECT run, step, culprit_rank, count(*) AS victims, max(delay_ns) AS worst_ns FROM by_victim GROUP BY ALL
)
SELECT l.run, l.step, l.culprit_rank, l.delay_ns, v.victims, v.worst_ns, l.category,
    row_number() OVER (PARTITION BY l.run, l.step ORDER BY l.delay_ns DESC, l.culprit_rank) AS first_cause
FROM foremost AS l
JOIN victims AS v USING (run, step, culprit_rank)
ORDER BY l.run, l.step, first_cause;
