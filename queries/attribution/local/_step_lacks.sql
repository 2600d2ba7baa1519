-- _step_lacks: how much of a usual step's work each odd step has not done.
--
-- Inputs: _odd_steps, gpu_ops
-- Output:
--   step   BIGINT  the odd step
--   share  DOUBLE  of the usual step's kernels, by name and number, those that it has not
-- Assumes: kernels tell what a step is. One that does all that a usual one does, and more, is one with a stall in it.
CREATE OR REPLACE TEMP TABLE _step_lacks AS
WITH kernels AS (
    SELECT s.step, s.odd, o.name, count(*) AS n
    FROM gpu_ops AS o
    JOIN _odd_steps AS s ON o.start_ns >= s.start_ns AND o.start_ns < s.end_ns
    WHERE o.op_class <> 'copy' AND o.end_ns >= o.start_ns
    GROUP BY s.step, s.odd, o.name
),
usual AS (
    SELECT name, n, sum(n) OVER () AS total FROM kernels WHERE NOT odd
)
SELECT s.step, 1 - sum(least(coalesce(k.n, 0), u.n)) / any_value(u.total) AS share
FROM _odd_steps AS s
CROSS JOIN usual AS u
LEFT JOIN kernels AS k ON k.odd AND k.step = s.step AND k.name IS NOT DISTINCT FROM u.name
WHERE s.odd
GROUP BY s.step;
