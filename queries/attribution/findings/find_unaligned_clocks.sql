-- find_unaligned_clocks: nodes whose clocks can't be brought onto one axis.
--
-- Inputs: clock_offsets
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_unaligned_clocks AS
SELECT
    'warning' AS severity,
    NULL::BIGINT AS rank, any_value(node ORDER BY node) AS node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'nodes without a common clock' AS measure,
    count(*) AS value,
    1 AS threshold,
    'inferred' AS evidence,
    printf('%d nodes are unaligned (%s): no collective ties their clocks to the others, so no wait across them is claimed.', count(*),
        string_agg(node, ', ' ORDER BY node)) AS text,
    'excluded: nothing to exclude; results inside each rank stand' AS confounders,
    'give [comm] groups in run.toml, or capture ranks that share a collective' AS next
FROM clock_offsets
WHERE status = 'unaligned'
HAVING count(*) > 0;
