-- export_window: what an exported timeline covers: one step on each chosen rank.
--
-- Inputs: steps, ranks, export_ranks, report_scope
-- Output:
--   rank       BIGINT   rank
--   node       VARCHAR  its node; NULL where unknown
--   pid        BIGINT   its process; NULL where unknown
--   gpu        VARCHAR  GPU model; NULL where unknown
--   start_ns   BIGINT   start of the step, ns on the run clock
--   end_ns     BIGINT   its end, exclusive
-- Assumes: report_scope names the step; export_ranks(rank) holds the chosen ranks, none for all.
CREATE OR REPLACE TEMP TABLE export_window AS
SELECT s.rank, any_value(r.node) AS node, any_value(r.pid) AS pid, any_value(r.gpu_name) AS gpu, min(s.start_ns) AS start_ns,
  max(s.end_ns) AS end_ns
FROM steps AS s
JOIN report_scope AS c ON c.step = s.step
LEFT JOIN ranks AS r ON r.rank = s.rank
WHERE s.rank IN (SELECT rank FROM export_ranks) OR NOT EXISTS (SELECT 1 FROM export_ranks)
GROUP BY s.rank
ORDER BY s.rank;
