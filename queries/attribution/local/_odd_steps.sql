-- _odd_steps: steps with a quarter more or a fifth fewer operations than usual, and a usual one to compare them with.
--
-- Inputs: _steps_found
-- Output, no row where no step is odd:
--   step, start_ns, end_ns as in steps
--   odd  BOOLEAN  false for the one to compare with: the first of those nearest to the usual number of operations
CREATE OR REPLACE TEMP TABLE _odd_steps AS
WITH odd AS (
    SELECT step, start_ns, end_ns, true AS odd
    FROM _steps_found
    WHERE 4 * n_operations > 5 * usual OR 5 * n_operations < 4 * usual
),
usual AS (
    SELECT step, start_ns, end_ns, false AS odd
    FROM _steps_found
    WHERE complete AND n_operations IS NOT NULL
    ORDER BY abs(n_operations - usual), start_ns
    LIMIT 1
)
FROM odd
UNION ALL
FROM usual WHERE EXISTS (FROM odd);
