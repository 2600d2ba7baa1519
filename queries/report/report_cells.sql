-- report_cells: time of each category in each step of each rank, whatever its evidence.
--
-- Inputs: breakdown, report_steps
-- Output:
--   rank           BIGINT   rank
--   step           BIGINT   step
--   category       VARCHAR  category of attribution
--   attributed_ns  BIGINT   time given to it, ns
--   counted        BOOLEAN  the step enters the statistics
CREATE OR REPLACE TEMP TABLE report_cells AS
SELECT b.rank, b.step, b.category, CAST(sum(b.attributed_ns) AS BIGINT) AS attributed_ns, any_value(s.counted) AS counted
FROM breakdown AS b
JOIN report_steps AS s ON s.rank = b.rank AND s.step = b.step
GROUP BY b.rank, b.step, b.category
HAVING sum(b.attributed_ns) > 0
ORDER BY b.rank, b.step, b.category;
