-- report_ranks: step time of each rank over its counted steps, beside what is known of the rank.
--
-- Inputs: ranks, report_steps, report_cells, report_scope
-- Output:
--   rank        BIGINT   rank
--   node        VARCHAR  node; NULL where unknown
--   gpu         VARCHAR  GPU model; NULL where unknown
--   nic         VARCHAR  RDMA device; NULL where unknown
--   steps       BIGINT   counted steps
--   mean_ns     DOUBLE   mean step time, ns; NULL without a counted step
--   median_ns   BIGINT   median step time (lower middle), ns
--   max_ns      BIGINT   longest step, ns
--   categories  MAP      mean time per counted step of each category, ns
CREATE OR REPLACE TEMP TABLE report_ranks AS
WITH known AS (
  SELECT r.rank, any_value(r.node) AS node, any_value(r.gpu_name) AS gpu, any_value(r.nic) AS nic
  FROM ranks AS r, report_scope AS c
  WHERE r.rank IS NOT NULL AND (c.rank IS NULL OR r.rank = c.rank)
  GROUP BY r.rank
), times AS (
  SELECT rank, count(*) AS steps, avg(wall_ns) AS mean_ns, quantile_disc(wall_ns, 0.5) AS median_ns, max(wall_ns) AS max_ns
  FROM report_steps
  WHERE counted
  GROUP BY rank
), parts AS (
  SELECT c.rank, c.category, sum(c.attributed_ns) / any_value(t.steps) AS mean_ns
  FROM report_cells AS c
  JOIN times AS t ON t.rank = c.rank
  WHERE c.counted
  GROUP BY c.rank, c.category
), maps AS (
  SELECT rank, map_from_entries(list((category, mean_ns) ORDER BY category)) AS categories
  FROM parts
  GROUP BY rank
)
SELECT coalesce(k.rank, t.rank) AS rank, k.node, k.gpu, k.nic, coalesce(t.steps, 0) AS steps, t.mean_ns, t.median_ns,
  t.max_ns, m.categories
FROM known AS k
FULL JOIN times AS t ON t.rank = k.rank
LEFT JOIN maps AS m ON m.rank = t.rank
ORDER BY coalesce(k.rank, t.rank);
