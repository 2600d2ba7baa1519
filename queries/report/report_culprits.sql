-- report_culprits: what the waits are charged to: a rank, and what it was doing meanwhile.
--
-- Inputs: delay_cost, report_steps
-- Output:
--   culprit_rank  BIGINT   rank that is charged
--   category      VARCHAR  what it was doing
--   delay_ns      HUGEINT  time charged over all victims, ns
--   victims       BIGINT   ranks that waited
--   steps         BIGINT   steps in which they did
--   hops          BIGINT   longest chain of waits that leads to it; 0: waited for directly
CREATE OR REPLACE TEMP TABLE report_culprits AS
SELECT d.culprit_rank, d.category, sum(d.delay_ns) AS delay_ns, count(DISTINCT d.victim_rank) AS victims,
  count(DISTINCT d.step) AS steps, max(d.hop) AS hops
FROM delay_cost AS d
JOIN report_steps AS s ON s.rank = d.victim_rank AND s.step = d.step
GROUP BY d.culprit_rank, d.category
HAVING sum(d.delay_ns) > 0
ORDER BY delay_ns DESC, d.culprit_rank, d.category;
