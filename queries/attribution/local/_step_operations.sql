-- _step_operations: what the GPU did of the work that was launched inside each step's range.
--
-- Inputs: _step_ranges, _step_bins, gpu_ops, cuda_api
-- Output:
--   ordinal       BIGINT   the range
--   first_ns      BIGINT   start of the first GPU operation launched inside it (by any thread); NULL: none
--   last_ns       BIGINT   end of the last one; NULL: none
--   n_operations  BIGINT   how many
--   cut           BOOLEAN  launch calls follow its last recorded operation: the capture ended before the GPU did
--   begun         BOOLEAN  the first range, and kernels from before it are still on the GPU: the capture began inside a step,
--                          whose rest is counted here
-- Assumes: ranges do not nest (an overlap goes to the later range).
CREATE OR REPLACE TEMP TABLE _step_operations AS
WITH launched AS (
    SELECT b.ordinal, o.start_ns, o.end_ns, o.launch_start_ns
    FROM (
        SELECT launch_start_ns, start_ns, end_ns, launch_start_ns >> (SELECT any_value(bits) FROM _step_bins) AS bin
        FROM gpu_ops
        WHERE launch_start_ns IS NOT NULL AND end_ns >= start_ns
    ) AS o
    JOIN _step_bins AS b ON b.bin = o.bin AND o.launch_start_ns >= b.start_ns AND o.launch_start_ns < b.end_ns
),
per_range AS (
    SELECT
        ordinal,
        min(start_ns) AS first_ns,
        max(end_ns) AS last_ns,
        count(*) AS n_operations,
        max(launch_start_ns) AS last_launch_ns
    FROM launched
    GROUP BY ordinal
),
first_range AS (
    SELECT r.ordinal, r.start_ns, p.first_ns
    FROM _step_ranges AS r
    LEFT JOIN per_range AS p ON p.ordinal = r.ordinal
    WHERE r.ordinal = (SELECT min(ordinal) FROM _step_ranges)
),
earlier AS (
    SELECT f.ordinal, count(*) AS n
    FROM gpu_ops AS o
    JOIN first_range AS f
        ON o.end_ns > f.start_ns AND (o.launch_start_ns < f.start_ns OR o.launch_start_ns IS NULL AND o.start_ns < f.first_ns)
    WHERE o.op_class <> 'copy' AND o.end_ns >= o.start_ns
    GROUP BY f.ordinal
)
SELECT
    r.ordinal,
    p.first_ns,
    p.last_ns,
    coalesce(p.n_operations, 0) AS n_operations,
    r.ordinal = (SELECT max(ordinal) FROM _step_ranges)
    AND p.last_launch_ns IS NOT NULL
    AND (
        SELECT count(*)
        FROM cuda_api
        WHERE start_ns > (SELECT max_by(last_launch_ns, ordinal) FROM per_range)
            AND start_ns < (SELECT max_by(end_ns, ordinal) FROM _step_ranges)
            AND regexp_matches(name, '^(cuda|cu)(LaunchKernel|GraphLaunch)')
    ) > 0 AS cut,
    e.n IS NOT NULL AS begun
FROM _step_ranges AS r
LEFT JOIN per_range AS p ON p.ordinal = r.ordinal
LEFT JOIN earlier AS e ON e.ordinal = r.ordinal;
