-- _clock_cross_check: how well two captures of one node agree on when the same threads were switched in.
--
-- Inputs: _clock_slices
-- Output:
--   node          VARCHAR  node
--   kinds         VARCHAR  the two input formats
--   slices        BIGINT   switches that both saw
--   residual_ns   BIGINT   median of (second - first): what is left of their clocks' difference
--   spread_ns     BIGINT   median of the distance from it
-- Assumes: _clock_slices has capture_id, kind, node, tid, cpu, start_ns of slices that run. A switch is the same where
--   thread and core are, and no other one of the second capture is nearer; beyond 1 ms it is none. This checks clocks
--   that anchors have aligned; it aligns none.
CREATE OR REPLACE TEMP TABLE _clock_cross_check AS
WITH pairs AS (
    SELECT DISTINCT a.node, a.capture_id AS first_id, b.capture_id AS second_id,
        least(a.kind, b.kind) || ', ' || greatest(a.kind, b.kind) AS kinds
    FROM (SELECT DISTINCT node, capture_id, kind FROM _clock_slices) AS a
    JOIN (SELECT DISTINCT node, capture_id, kind FROM _clock_slices) AS b ON b.node = a.node AND a.kind < b.kind
),
wanted AS (
    SELECT p.*, s.tid, s.cpu, s.start_ns FROM pairs AS p JOIN _clock_slices AS s ON s.capture_id = p.first_id
),
near AS (
    SELECT w.node, w.kinds, w.start_ns, before.start_ns AS before_ns, following.start_ns AS after_ns
    FROM wanted AS w
    ASOF LEFT JOIN _clock_slices AS before
        ON before.capture_id = w.second_id AND before.tid = w.tid AND before.cpu = w.cpu AND w.start_ns >= before.start_ns
    ASOF LEFT JOIN _clock_slices AS following
        ON following.capture_id = w.second_id AND following.tid = w.tid AND following.cpu = w.cpu
        AND w.start_ns < following.start_ns
),
apart AS (
    SELECT node, kinds,
        CASE
            WHEN before_ns IS NULL OR after_ns - start_ns < start_ns - before_ns THEN after_ns - start_ns
            ELSE before_ns - start_ns
        END AS apart_ns
    FROM near
),
middle AS (
    SELECT *, quantile_disc(apart_ns, 0.5) OVER (PARTITION BY node, kinds) AS residual_ns
    FROM apart
    WHERE abs(apart_ns) <= 1000000
)
SELECT node, kinds, count(*) AS slices, any_value(residual_ns) AS residual_ns,
    quantile_disc(abs(apart_ns - residual_ns), 0.5) AS spread_ns
FROM middle
GROUP BY node, kinds
ORDER BY node, kinds;
