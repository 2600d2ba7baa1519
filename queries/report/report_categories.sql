-- report_categories: time of each category, by evidence, over the counted steps.
--
-- Inputs: breakdown, report_steps
-- Output:
--   category       VARCHAR  category of attribution
--   evidence       VARCHAR  how it is known
--   attributed_ns  HUGEINT  time given to it, ns
--   exclusive_ns   HUGEINT  time when only it held, ns; NULL where no row says
--   inclusive_ns   HUGEINT  time when it held at all, ns
--   hidden_ns      HUGEINT  time when it held under something of higher order, ns
--   lo_ns          HUGEINT  lower bound of attributed_ns
--   hi_ns          HUGEINT  upper bound of attributed_ns
--   rank_steps     BIGINT   counted (rank, step) pairs with some of it
--   ranks          BIGINT   ranks with some of it
CREATE OR REPLACE TEMP TABLE report_categories AS
SELECT b.category, b.evidence, sum(b.attributed_ns) AS attributed_ns, sum(b.exclusive_ns) AS exclusive_ns,
  sum(b.inclusive_ns) AS inclusive_ns, sum(b.hidden_ns) AS hidden_ns,
  sum(coalesce(b.lo_ns, b.attributed_ns)) AS lo_ns, sum(coalesce(b.hi_ns, b.attributed_ns)) AS hi_ns,
  count(*) FILTER (b.attributed_ns > 0) AS rank_steps,
  count(DISTINCT b.rank) FILTER (b.attributed_ns > 0) AS ranks
FROM breakdown AS b
JOIN report_steps AS s ON s.rank = b.rank AND s.step = b.step
WHERE s.counted
GROUP BY ALL
ORDER BY b.category, b.evidence;
