-- _steps_window: windows of equal length over a run in which no steps were found. They claim nothing.
--
-- Inputs: gpu_ops, run_span
-- Output:
--   step, start_ns, end_ns, source, confidence, complete as in steps; step is the window's place in the run
--   n_operations  BIGINT  NULL: windows are not compared with each other
-- Assumes: the windows are the same for all ranks: 1, 2 or 5 times a power of ten ns, at most 100 in the run.
CREATE OR REPLACE TEMP TABLE _steps_window AS
WITH extent AS (
    SELECT min(start_ns) AS first_ns, max(end_ns) AS last_ns FROM gpu_ops WHERE end_ns >= start_ns
),
lengths AS (
    SELECT min(m.mantissa * (10::BIGINT ** d.digits)::BIGINT) AS window_ns
    FROM range(0, 18) AS d (digits)
    CROSS JOIN (VALUES (1), (2), (5)) AS m (mantissa)
    CROSS JOIN run_span AS s
    WHERE m.mantissa * (10::BIGINT ** d.digits)::BIGINT >= (s.last_ns - s.first_ns) // 100 + 1
),
windows AS (
    SELECT
        w.step,
        s.first_ns + w.step * l.window_ns AS start_ns,
        s.first_ns + (w.step + 1) * l.window_ns AS end_ns
    FROM run_span AS s
    CROSS JOIN lengths AS l
    CROSS JOIN range(0, 101) AS w (step)
)
SELECT
    w.step,
    greatest(w.start_ns, e.first_ns) AS start_ns,
    least(w.end_ns, e.last_ns) AS end_ns,
    'window' AS source,
    0.0 AS confidence,
    w.start_ns >= e.first_ns AND w.end_ns <= e.last_ns AS complete,
    NULL::BIGINT AS n_operations
FROM windows AS w
CROSS JOIN extent AS e
WHERE w.start_ns < e.last_ns AND w.end_ns > e.first_ns;
