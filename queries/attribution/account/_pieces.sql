-- _pieces: every instant of every step once, with all that holds there.
--
-- Inputs: _gpu_frames, _comm_frames, _host_frames, _host_windows, _slots
-- Output:
--   ordinal   BIGINT  the step, by place in time
--   start_ns  BIGINT  start
--   end_ns    BIGINT  end; pieces tile the steps
--   mask      BIGINT  bits of the categories that hold; the lowest one gets the time
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
)
SELECT
    f.ordinal,
    f.start_ns,
    f.end_ns,
    CASE
        WHEN NOT (f.compute OR f.copy) THEN k.gap
        ELSE CASE WHEN f.compute THEN k.compute ELSE 0 END + CASE WHEN f.copy THEN k.copy ELSE 0 END
    END AS mask
FROM _gpu_frames AS f
CROSS JOIN known AS k
WHERE NOT f.comm AND (f.compute OR f.copy OR f.gpu_loss)
UNION ALL
SELECT ordinal, start_ns, end_ns, mask FROM _comm_frames
UNION ALL
SELECT
    f.ordinal,
    f.start_ns,
    f.end_ns,
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
SELECT w.ordinal, w.start_ns, w.cut_ns, k.idle_other
FROM _host_windows AS w
CROSS JOIN known AS k
WHERE w.tid IS NULL AND w.cut_ns > w.start_ns
UNION ALL
SELECT w.ordinal, w.cut_ns, w.end_ns, k.gpu_dependency
FROM _host_windows AS w
CROSS JOIN known AS k
WHERE w.end_ns > w.cut_ns;
