-- steps: the steps of this rank: from NVTX ranges, else inferred, else windows.
--
-- Inputs: _steps_nvtx, _steps_inferred, _steps_window, gpu_ops, losses, this_rank
-- Output:
--   rank        BIGINT   this rank
--   step        BIGINT   number in the range's text, else the ordinal from 0
--   start_ns    BIGINT   start; steps tile
--   end_ns      BIGINT   end
--   source      VARCHAR  nvtx, inferred or window
--   confidence  DOUBLE   1 for nvtx, agreement of periods for inferred, 0 for window
--   complete    BOOLEAN  both edges lie inside the capture and no loss touches it
--   outlier     BOOLEAN  another kind of step (evaluation, checkpoint, warm-up), left out of means
-- Assumes: a rank without a GPU operation has no timeline to account for and no steps: launches without kernels
--   are a capture that failed, never idle. A step is an outlier if it launched a quarter more or a fifth fewer
--   operations than the median, or if its length is beyond a factor of 2 of the median and it is either the first, or
--   launched a tenth more or fewer. A stall is neither: the same operations take longer.
CREATE OR REPLACE TEMP TABLE steps AS
WITH found AS (
    SELECT * FROM _steps_nvtx
    UNION ALL
    SELECT * FROM _steps_inferred WHERE NOT EXISTS (FROM _steps_nvtx)
    UNION ALL
    SELECT * FROM _steps_window WHERE NOT EXISTS (FROM _steps_nvtx) AND NOT EXISTS (FROM _steps_inferred)
),
judged AS (
    SELECT
        f.*,
        f.complete AND NOT EXISTS (
            SELECT 1
            FROM losses AS l
            WHERE coalesce(l.start_ns, f.start_ns) < f.end_ns AND coalesce(l.end_ns, f.end_ns) > f.start_ns
        ) AS undisturbed,
        f.end_ns - f.start_ns AS length_ns,
        row_number() OVER (ORDER BY f.start_ns, f.step) = 1 AS first_step
    FROM found AS f
    WHERE EXISTS (SELECT 1 FROM gpu_ops WHERE end_ns >= start_ns)
),
typical AS (
    SELECT median(length_ns) AS length_ns, median(n_operations) AS n_operations
    FROM judged
    WHERE undisturbed
)
SELECT
    r.rank,
    j.step,
    j.start_ns,
    j.end_ns,
    j.source,
    j.confidence,
    j.undisturbed AS complete,
    coalesce(
        j.source <> 'window'
        AND (
            4 * j.n_operations > 5 * t.n_operations
            OR 5 * j.n_operations < 4 * t.n_operations
            OR (
                (j.length_ns > 2 * t.length_ns OR 2 * j.length_ns < t.length_ns)
                AND (j.first_step OR abs(j.n_operations - t.n_operations) > 0.1 * t.n_operations)
            )
        ),
        false
    ) AS outlier
FROM judged AS j
CROSS JOIN typical AS t
CROSS JOIN this_rank AS r;
