-- _bounds: how far a step's inferred figures may be off, by category.
--
-- Inputs: _wait_windows, _carried_messages, _step_order, captures, fits
-- Output:
--   ordinal    BIGINT  the step, by place in time
--   category   VARCHAR  category
--   less_ns    BIGINT  the true figure may be smaller by this, ns; NULL: no lower bound but 0
--   more_ns    BIGINT  it may be larger by this, ns
--   less_part  DOUBLE  and smaller by this part of itself
--   more_part  DOUBLE  and larger by this part of itself
-- Assumes: the end of each wait is known to the clock error of the pair. A post's duration is known to the probe's cost
--   where that was calibrated (so as a part of the durations), else it is an upper bound. What the probes cost in all is the thread's time between
--   posts, which would not be there without them. A fitted beta is known to its interval, and transfer goes
--   with 1/beta; one from run.toml is taken as it is. Errors of one category add up: they may all point one way.
CREATE OR REPLACE TEMP TABLE _bounds AS
WITH late AS (
    SELECT
        o.ordinal,
        'wait_' || w.kind AS category,
        sum(w.clock_error_ns)::BIGINT AS error_ns
    FROM (
        SELECT op_id, kind, min(start_ns) AS start_ns, max(clock_error_ns) AS clock_error_ns
        FROM _wait_windows
        WHERE NOT within_clock_error
        GROUP BY op_id, kind
    ) AS w
    ASOF JOIN _step_order AS o ON w.start_ns >= o.start_ns
    GROUP BY o.ordinal, w.kind
),
probe AS (
    SELECT
        max(probe_cost_ns) AS cost_ns,
        CASE WHEN bool_and(probe_call_ns IS NOT NULL) THEN max(probe_call_ns) END AS call_ns,
        count(*) > 0 AS probed,
        coalesce(bool_and(probe_cost_ns IS NOT NULL), true) AS calibrated
    FROM captures
    WHERE kind IN ('ebpf_csv', 'perf_script') AND status <> 'unusable'
),
posts AS (
    SELECT o.ordinal, count(*) AS n, count(*) / nullif(sum(m.exit_ns - m.enter_ns), 0) AS n_per_ns
    FROM (FROM _carried_messages WHERE op_id IS NOT NULL) AS m
    ASOF JOIN _step_order AS o ON m.enter_ns >= o.start_ns
    GROUP BY o.ordinal
),
beta AS (
    SELECT
        max(1 - beta_bytes_per_s / beta_hi) AS less_part,
        max(beta_bytes_per_s / beta_lo - 1) AS more_part
    FROM fits
    WHERE beta_source = 'fit' AND beta_lo > 0 AND (node, nic) IN (SELECT DISTINCT (node, nic) FROM _carried_messages)
)
SELECT ordinal, category, error_ns AS less_ns, error_ns AS more_ns, 0::DOUBLE AS less_part, 0::DOUBLE AS more_part FROM late
UNION ALL
SELECT
    p.ordinal,
    unnest(['ctl_post', 'ctl_wqe', 'ctl_doorbell']),
    CASE WHEN b.calibrated THEN 0 END,
    0,
    CASE WHEN b.calibrated THEN least(1, p.n_per_ns * b.cost_ns) ELSE 0 END,
    CASE WHEN b.calibrated THEN p.n_per_ns * b.cost_ns ELSE 0 END
FROM posts AS p
CROSS JOIN probe AS b
WHERE (NOT b.calibrated OR b.cost_ns > 0) AND p.n_per_ns IS NOT NULL
UNION ALL
SELECT p.ordinal, unnest(['ctl_loop', 'ctl_cpu']), p.n * b.call_ns, 0, 0, 0
FROM posts AS p
CROSS JOIN probe AS b
WHERE b.probed
UNION ALL
SELECT o.ordinal, 'rdma_transfer', 0, 0, b.less_part, b.more_part
FROM _step_order AS o
CROSS JOIN beta AS b
WHERE b.less_part IS NOT NULL;
