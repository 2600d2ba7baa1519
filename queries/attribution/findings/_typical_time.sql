-- _typical_time: each rank's time by category over the steps that statistics are made of.
--
-- Inputs: _counted_steps, breakdown
-- Output:
--   rank      BIGINT   rank
--   category  VARCHAR  category
--   time_ns   BIGINT   attributed time, ns
--   wall_ns   BIGINT   wall time of those steps, ns
CREATE OR REPLACE TEMP TABLE _typical_time AS
WITH wall AS (
    SELECT rank, sum(wall_ns)::BIGINT AS wall_ns FROM _counted_steps GROUP BY rank
)
SELECT b.rank, b.category, sum(b.attributed_ns)::BIGINT AS time_ns, any_value(w.wall_ns) AS wall_ns
FROM breakdown AS b
JOIN _counted_steps AS c ON b.rank = c.rank AND b.step = c.step
JOIN wall AS w ON b.rank = w.rank
GROUP BY b.rank, b.category
ORDER BY b.rank, b.category;
