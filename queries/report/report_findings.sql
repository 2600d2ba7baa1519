-- report_findings: findings that concern the report's ranks and step, the gravest first.
--
-- Inputs: findings, report_scope
-- Output: the columns of findings
CREATE OR REPLACE TEMP TABLE report_findings AS
SELECT f.*
FROM findings AS f, report_scope AS c
WHERE (c.rank IS NULL OR f.rank IS NULL OR f.rank = c.rank) AND (c.step IS NULL OR f.step IS NULL OR f.step = c.step)
ORDER BY CASE f.severity WHEN 'critical' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, f.place, f.code, f.rank NULLS FIRST,
  f.step NULLS FIRST, f.node NULLS FIRST, f.nic NULLS FIRST, f.text;
