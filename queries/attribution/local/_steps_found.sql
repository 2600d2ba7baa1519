-- _steps_found: the steps of this rank before they are compared with each other: from NVTX ranges, else inferred, else windows.
--
-- Inputs: _steps_nvtx, _steps_inferred, _steps_window, gpu_ops, losses
-- Output:
--   step, start_ns, end_ns, source, confidence as in steps
--   complete      BOOLEAN  both edges lie inside the capture and no loss touches it
--   n_operations  BIGINT   GPU operations of the step; NULL for windows
--   usual         BIGINT   median of n_operations over complete steps
-- Assumes: a rank without a GPU operation has no timeline to account for and no steps: launches without kernels
--   are a capture that failed, never idle.
CREATE OR REPLACE TEMP TABLE _steps_found AS
WITH found AS (
    SELECT * FROM _steps_nvtx
    UNION ALL
    SELECT * FROM _steps_inferred WHERE NOT EXISTS (FROM _steps_nvtx)
    UNION ALL
    SELECT * FROM _steps_window WHERE NOT EXISTS (FROM _steps_nvtx) AND NOT EXISTS (FROM _steps_inferred)
),
judged AS (
    SELECT
        f.* EXCLUDE (complete),
        f.complete AND NOT EXISTS (
            SELECT 1
            FROM losses AS l
            WHERE coalesce(l.start_ns, f.start_ns) < f.end_ns AND coalesce(l.end_ns, f.end_ns) > f.start_ns
        ) AS complete
    FROM found AS f
    WHERE EXISTS (SELECT 1 FROM gpu_ops WHERE end_ns >= start_ns)
)
SELECT step, start_ns, end_ns, source, confidence, complete, n_operations,
    median(n_operations) FILTER (complete) OVER () AS usual
FROM judged;
