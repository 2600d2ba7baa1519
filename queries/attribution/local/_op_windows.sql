-- _op_windows: the instants that belong to each communication operation of a rank, disjoint.
--
-- Inputs: _operations
-- Output:
--   rank        BIGINT   rank
--   op_id       BIGINT   operation (_operations)
--   start_ns    BIGINT   start, ns
--   end_ns      BIGINT   end, exclusive, ns
-- Assumes: of operations that overlap, an instant belongs to the one that started first and is still open (its
--          messages are ahead in every queue). Op i owns [max(start_i, latest end of those before), end_i): a running
--          maximum, no join. Together the windows cover what the operations cover.
CREATE OR REPLACE TEMP TABLE _op_windows AS
WITH bounded AS (
    SELECT
        rank,
        op_id,
        start_ns,
        end_ns,
        max(end_ns) OVER (
            PARTITION BY rank ORDER BY op_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS earlier_end_ns
    FROM _operations
    WHERE end_ns > start_ns
)
SELECT rank, op_id, greatest(start_ns, coalesce(earlier_end_ns, start_ns)) AS start_ns, end_ns
FROM bounded
WHERE end_ns > coalesce(earlier_end_ns, start_ns)
ORDER BY rank, start_ns;
