-- percentile_table: percentiles of a list of numbers, one a row.
--
-- Arguments:
--   numbers  BIGINT[]  the numbers; NULLs are left out
-- Output:
--   percentile  DOUBLE  0 (least), 50, 90, 95, 99, 99.9 and 100 (greatest)
--   value       BIGINT  the least of the numbers that at least so many per cent of them do not exceed, in their unit
-- Assumes: nearest rank: every value is one of the numbers.
-- Example: SELECT percentile, fmt_ns(value) FROM percentile_table((SELECT list(end_ns - start_ns) FROM steps));
CREATE OR REPLACE MACRO percentile_table(numbers) AS TABLE
WITH sorted AS (
    SELECT list_sort(list_filter(numbers, lambda x: x IS NOT NULL)) AS ascending
)
SELECT p.percentile, s.ascending[greatest(1, ceil(p.percentile * len(s.ascending) / 100))::BIGINT]::BIGINT AS value
FROM sorted AS s
CROSS JOIN (SELECT unnest([0, 50, 90, 95, 99, 99.9, 100])::DOUBLE AS percentile) AS p
WHERE len(s.ascending) > 0
ORDER BY p.percentile;
