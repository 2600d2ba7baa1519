-- _pieces: every instant of every step once, with all that holds there.
--
-- Inputs: _gpu_frames, _comm_frames, _host_frames, _host_windows, _touched_windows, _slots, _step_order
-- Output, in order of time:
--   ordinal   BIGINT  the step, by place in time
--   start_ns  BIGINT  start
--   end_ns    BIGINT  end; pieces tile the steps
--   mask      BIGINT  bits of the categories that hold; the lowest one gets the time
-- Assumes: the parts tile the time from the first operation or step on, and steps tile too; so a part lasts until the
--   next one starts, and the edges of steps only have to be sorted in between.
CREATE OR REPLACE TEMP TABLE _pieces AS
WITH known AS (
    SELECT
        max(bit) FILTER (category = 'compute') AS compute,
        max(bit) FILTER (category = 'memcpy') AS copy,
        max(bit) FILTER (category = 'trace_gap' AND evidence = 'measured_nsys') AS gap,
        max(bit) FILTER (category = 'gpu_dependency') AS gpu_dependency,
        max(bit) FILTER (category = 'host_sync') AS host_sync,
        max(bit) FILTER (category = 'host_data') AS host_data,
        max(bit) FILTER (category = 'host_other') AS host_other,
        max(bit) FILTER (category = 'host_launch') AS host_launch,
        max(bit) FILTER (category = 'idle_other') AS idle_other
    FROM _slots
),
part AS (
    SELECT
        f.start_ns,
        CASE WHEN f.kinds & 1 > 0 THEN k.compute ELSE 0 END + CASE WHEN f.kinds & 4 > 0 THEN k.copy ELSE 0 END AS mask
    FROM _gpu_frames AS f
    CROSS JOIN known AS k
    WHERE f.kinds & 2 = 0
    UNION ALL
    SELECT start_ns, mask FROM _comm_frames
    UNION ALL
    SELECT
        f.start_ns,
        CASE
            WHEN f.sync OR f.data OR f.other
                THEN CASE WHEN f.sync THEN k.host_sync ELSE 0 END
                    + CASE WHEN f.data THEN k.host_data ELSE 0 END
                    + CASE WHEN f.other THEN k.host_other ELSE 0 END
            ELSE k.host_launch
        END
    FROM _host_frames AS f
    CROSS JOIN known AS k
    UNION ALL
    SELECT w.start_ns, CASE WHEN w.lost THEN k.gap WHEN w.tid IS NULL THEN k.idle_other ELSE k.host_launch END
    FROM _host_windows AS w
    ANTI JOIN _touched_windows AS t ON w.start_ns = t.start_ns
    CROSS JOIN known AS k
    WHERE w.lost OR w.cut_ns > w.start_ns
    UNION ALL
    SELECT w.cut_ns, k.gpu_dependency
    FROM _host_windows AS w
    CROSS JOIN known AS k
    WHERE NOT w.lost AND w.end_ns > w.cut_ns
),
step_edge AS (
    -- A step without length has no piece; behind the last one lies none.
    SELECT at_ns, CASE WHEN bool_or(ordinal IS NULL) THEN -1 ELSE max(ordinal) END AS ordinal
    FROM (
        SELECT start_ns AS at_ns, ordinal FROM _step_order
        UNION ALL
        SELECT max(end_ns), NULL FROM _step_order HAVING count(*) > 0
    )
    GROUP BY at_ns
),
swept AS (
    SELECT
        at_ns AS start_ns,
        lead(at_ns) OVER () AS end_ns,
        last_value(mask IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS mask,
        last_value(ordinal IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS ordinal
    FROM (
        SELECT start_ns AS at_ns, mask, NULL::BIGINT AS ordinal FROM part
        UNION ALL
        SELECT at_ns, NULL, ordinal FROM step_edge
        ORDER BY at_ns
    )
)
SELECT ordinal, start_ns, end_ns, mask
FROM swept
WHERE end_ns > start_ns AND ordinal >= 0;
