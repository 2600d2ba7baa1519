-- report_evidence: time that each level of evidence carries, over the counted steps.
--
-- Inputs: report_categories
-- Output:
--   evidence       VARCHAR  how it is known
--   attributed_ns  HUGEINT  time, ns
CREATE OR REPLACE TEMP TABLE report_evidence AS
SELECT evidence, sum(attributed_ns) AS attributed_ns
FROM report_categories
GROUP BY evidence
HAVING sum(attributed_ns) > 0
ORDER BY attributed_ns DESC, evidence;
