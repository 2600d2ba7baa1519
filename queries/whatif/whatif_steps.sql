-- whatif_steps: the steps that are replayed: typical ones, nearest to the median step time.
--
-- Inputs: steps, ranks
-- Output:
--   step     BIGINT  step
--   wall_ns  BIGINT  longest duration of it on any rank, ns
-- Assumes: three steps stand for all, one where there are many ranks: replays of more differ less than the steps do.
CREATE OR REPLACE TEMP TABLE whatif_steps AS
WITH whole AS (
    SELECT step, max(end_ns - start_ns) AS wall_ns
    FROM steps
    WHERE end_ns > start_ns
    GROUP BY step
    HAVING bool_and(complete AND NOT outlier) OR NOT (SELECT bool_or(complete AND NOT outlier) FROM steps)
)
SELECT step, wall_ns
FROM whole
ORDER BY abs(wall_ns - (SELECT median(wall_ns) FROM whole)), step
LIMIT (SELECT greatest(1, least(3, 64 // greatest(1, count(*)))) FROM ranks);
