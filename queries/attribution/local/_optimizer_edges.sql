-- _optimizer_edges: where steps begin in a run without step ranges whose kernels have no period: behind the optimizer.
--
-- Inputs: gpu_ops, _step_ranges, _period
-- Output:
--   start_ns    BIGINT  start of the first kernel behind an optimizer's last one
--   confidence  DOUBLE  0 to 1, of them all: the lower of the share of steps with the most frequent number of optimizer
--                       kernels, and of how much longer the stretches between steps are than those inside the optimizer
-- Assumes: routing makes steps of a mixture of experts unlike each other, but each updates the same parameters. A step
--   ends where at least half as many other kernels follow an optimizer kernel as ever do: an optimizer that runs inside
--   the backward pass, layer by layer, has its longest stretch in the forward pass. Fewer than 4 ends or stretches of
--   fewer than 4 kernels are no steps. The first step may be cut by the capture and does not count.
CREATE OR REPLACE TEMP TABLE _optimizer_edges AS
WITH kernel AS MATERIALIZED (
    SELECT
        start_ns,
        row_number() OVER (ORDER BY start_ns, end_ns, stream, name) AS i,
        regexp_matches(
            name,
            'optimizer|fused_?(adam|sgd|lamb|lion)|multi_tensor_(adam|sgd|lamb)|(^|[^a-z])(adamw?|sgd|lamb|lion|muon|adafactor|adagrad|rmsprop)([^a-z]|$)',
            'i'
        ) AS updates
    FROM gpu_ops
    WHERE op_class = 'compute' AND name IS NOT NULL AND end_ns >= start_ns
        AND NOT EXISTS (FROM _step_ranges) AND NOT EXISTS (FROM _period WHERE confidence >= 0.8)
),
updates AS (
    SELECT i, lead(i) OVER (ORDER BY i) - i - 1 AS n_others FROM kernel WHERE updates
),
ends AS (
    SELECT
        i,
        n_others,
        coalesce(2 * n_others >= most AND n_others >= 4, false) AS ends,
        count(*) FILTER (2 * n_others >= most AND n_others >= 4) OVER (
            ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS step
    FROM (SELECT *, max(n_others) OVER () AS most FROM updates)
),
sizes AS (
    SELECT step, count(*) AS n FROM ends GROUP BY step HAVING bool_or(ends) AND step > 0
),
agreement AS (
    SELECT max(n_steps) / sum(n_steps) AS share FROM (SELECT n, count(*) AS n_steps FROM sizes GROUP BY n)
),
apart AS (
    SELECT
        count(*) FILTER (ends) AS n,
        1 - coalesce(max(n_others) FILTER (NOT ends), 0) / min(n_others) FILTER (ends) AS share
    FROM ends
)
SELECT k.start_ns, least(g.share, a.share) AS confidence
FROM ends AS e
JOIN kernel AS k ON k.i = e.i + 1
CROSS JOIN agreement AS g
CROSS JOIN apart AS a
WHERE e.ends AND a.n >= 4
ORDER BY k.start_ns;
