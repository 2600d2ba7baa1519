-- _steps_inferred: steps guessed from the period of kernel names; empty below a confidence of 0.8.
--
-- Inputs: gpu_ops, _period
-- Output:
--   step, start_ns, end_ns, source, confidence, complete as in steps
--   n_operations  BIGINT  GPU operations that start in it
-- Assumes: what comes before the first marker is a part of a step, and so is what follows the last one.
CREATE OR REPLACE TEMP TABLE _steps_inferred AS
WITH period AS (
    SELECT marker, confidence FROM _period WHERE confidence >= 0.8
),
extent AS (
    SELECT min(start_ns) AS first_ns, max(end_ns) AS last_ns FROM gpu_ops WHERE end_ns >= start_ns
),
edges AS (
    SELECT DISTINCT start_ns FROM gpu_ops WHERE name = (SELECT marker FROM period) AND op_class <> 'copy'
    UNION
    SELECT first_ns FROM extent WHERE EXISTS (FROM period)
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
    p.confidence,
    t.next_ns IS NOT NULL
    AND EXISTS (
        SELECT 1 FROM gpu_ops AS o WHERE o.start_ns = t.start_ns AND o.name = p.marker AND o.op_class <> 'copy'
    ) AS complete,
    coalesce(c.n_operations, 0) AS n_operations
FROM tiled AS t
CROSS JOIN extent AS e
CROSS JOIN period AS p
LEFT JOIN counted AS c USING (step);
