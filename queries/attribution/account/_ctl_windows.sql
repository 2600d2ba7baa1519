-- _ctl_windows: the part of each step in which each communication operation is open.
--
-- Inputs: _operations, _step_order
-- Output:
--   window_id  BIGINT    operation, or several that overlap, which share one window
--   op_ids     BIGINT[]  the operations
--   ordinal    BIGINT    the step, by place in time
--   start_ns   BIGINT    start, inside the step
--   end_ns     BIGINT    end, inside the step
-- Assumes: operations that overlap (several streams) can't be told apart by time, so ctl_cpu is divided once for
--   all of them. Windows of one step are disjoint.
CREATE OR REPLACE TEMP TABLE _ctl_windows AS
WITH island AS (
    SELECT op_id, start_ns, end_ns, sum(new::INTEGER) OVER (ORDER BY start_ns, end_ns, op_id) AS window_id
    FROM (
        SELECT
            op_id,
            start_ns,
            end_ns,
            start_ns >= coalesce(max(end_ns) OVER (
                ORDER BY start_ns, end_ns, op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), start_ns) AS new
        FROM _operations
        WHERE end_ns > start_ns
    )
),
merged AS (
    SELECT window_id, list(op_id ORDER BY op_id) AS op_ids, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM island
    GROUP BY window_id
)
SELECT
    m.window_id::BIGINT AS window_id,
    m.op_ids,
    s.ordinal,
    greatest(m.start_ns, s.start_ns) AS start_ns,
    least(m.end_ns, s.end_ns) AS end_ns
FROM merged AS m
JOIN _step_order AS s ON s.start_ns < m.end_ns AND s.end_ns > m.start_ns
WHERE EXISTS (FROM _ctl_occupancy);
