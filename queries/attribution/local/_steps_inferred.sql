-- _steps_inferred: steps guessed from the period of kernel names, else from the optimizer; empty below a confidence of 0.8.
--
-- Inputs: gpu_ops, _period, _optimizer_edges
-- Output:
--   step, start_ns, end_ns, source, confidence, complete as in steps
--   n_operations  BIGINT  GPU operations that start in it
-- Assumes: what comes before the first marker is a part of a step, and so is what follows the last one.
CREATE OR REPLACE TEMP TABLE _steps_inferred AS
WITH marks AS MATERIALIZED (
    SELECT DISTINCT o.start_ns, p.confidence
    FROM gpu_ops AS o
    JOIN _period AS p ON o.name = p.marker
    WHERE o.op_class <> 'copy' AND p.confidence >= 0.8
    UNION
    SELECT start_ns, confidence FROM _optimizer_edges WHERE confidence >= 0.8
),
extent AS (
    SELECT min(start_ns) AS first_ns, max(end_ns) AS last_ns FROM gpu_ops WHERE end_ns >= start_ns
),
edges AS (
    SELECT start_ns FROM marks
    UNION
    SELECT first_ns FROM extent WHERE EXISTS (FROM marks)
),
tiled AS (
    SELECT
        row_number() OVER (ORDER BY start_ns) - 1 AS step,
        start_ns,
        lead(start_ns) OVER (ORDER BY start_ns) AS next_ns
    FROM edges
),
counted AS (
    SELECT t.step, count(*) AS n_operations
    FROM (SELECT start_ns FROM gpu_ops WHERE end_ns >= start_ns) AS o
    ASOF JOIN tiled AS t ON o.start_ns >= t.start_ns
    GROUP BY t.step
)
SELECT
    t.step,
    t.start_ns,
    coalesce(t.next_ns, e.last_ns) AS end_ns,
    'inferred' AS source,
    (SELECT any_value(confidence) FROM marks) AS confidence,
    t.next_ns IS NOT NULL AND m.start_ns IS NOT NULL AS complete,
    coalesce(c.n_operations, 0) AS n_operations
FROM tiled AS t
CROSS JOIN extent AS e
LEFT JOIN marks AS m ON t.start_ns = m.start_ns
LEFT JOIN counted AS c USING (step);
