-- _steps_nvtx: steps from NVTX ranges, cut on the GPU's side.
--
-- Inputs: _step_ranges, _step_operations
-- Output:
--   step, start_ns, end_ns, source, confidence, complete as in steps
--   n_operations  BIGINT  GPU operations launched in its range
-- Assumes: start_k = min(F_k, max(N_k, L_(k-1))): N_k start of the range, F_k of the first GPU operation launched
--   in it, L_(k-1) end of the last one launched in the range before (in the last range that launched any). A step
--   never starts before the one before it. Numbers are those of the texts where they are all there and differ.
CREATE OR REPLACE TEMP TABLE _steps_nvtx AS
WITH cut AS (
    SELECT
        r.ordinal,
        r.number,
        r.end_ns AS range_end_ns,
        r.closed AND NOT o.cut AND NOT o.begun AS whole,
        o.last_ns,
        o.n_operations,
        -- least and greatest pass over NULL.
        least(
            o.first_ns,
            greatest(
                r.start_ns,
                last_value(o.last_ns IGNORE NULLS) OVER (ORDER BY r.ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
            )
        ) AS cut_ns
    FROM _step_ranges AS r
    JOIN _step_operations AS o USING (ordinal)
),
monotone AS (
    SELECT *, max(cut_ns) OVER (ORDER BY ordinal ROWS UNBOUNDED PRECEDING) AS start_ns FROM cut
),
numbering AS (
    SELECT count(number) = count(*) AND count(DISTINCT number) = count(*) AS by_text FROM _step_ranges
)
SELECT
    CASE WHEN by_text THEN number ELSE ordinal END AS step,
    start_ns,
    coalesce(
        lead(start_ns) OVER (ORDER BY ordinal),
        greatest(start_ns, last_ns, range_end_ns)
    ) AS end_ns,
    'nvtx' AS source,
    1.0 AS confidence,
    whole AS complete,
    n_operations
FROM monotone
CROSS JOIN numbering;
