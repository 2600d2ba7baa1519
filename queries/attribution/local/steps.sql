-- steps: the steps of this rank, and which of them are of another kind than the others.
--
-- Inputs: _steps_found, _step_lacks, this_rank
-- Output:
--   rank        BIGINT   this rank
--   step        BIGINT   number in the range's text, else the ordinal from 0
--   start_ns    BIGINT   start; steps tile
--   end_ns      BIGINT   end
--   source      VARCHAR  nvtx, inferred or window
--   confidence  DOUBLE   1 for nvtx, agreement of periods for inferred, 0 for window
--   complete    BOOLEAN  both edges lie inside the capture and no loss touches it
--   outlier     BOOLEAN  another kind of step (evaluation, checkpoint, warm-up), left out of means
-- Assumes: a step is an outlier if it lacks a fifth of a usual step's kernels, or if its length is beyond a factor of 2 of
--   the median and it is either the first, or launched a tenth more or fewer operations than the median. A stall is
--   neither: the same operations take longer.
CREATE OR REPLACE TEMP TABLE steps AS
WITH typical AS (
    SELECT median(end_ns - start_ns) AS length_ns FROM _steps_found WHERE complete
)
SELECT
    r.rank,
    f.step,
    f.start_ns,
    f.end_ns,
    f.source,
    f.confidence,
    f.complete,
    coalesce(l.share > 0.2, false) OR coalesce(
        f.source <> 'window'
        AND (f.end_ns - f.start_ns > 2 * t.length_ns OR 2 * (f.end_ns - f.start_ns) < t.length_ns)
        AND (
            row_number() OVER (ORDER BY f.start_ns, f.step) = 1
            OR abs(f.n_operations - f.usual) > 0.1 * f.usual
        ),
        false
    ) AS outlier
FROM _steps_found AS f
CROSS JOIN typical AS t
CROSS JOIN this_rank AS r
LEFT JOIN _step_lacks AS l ON f.step = l.step;
