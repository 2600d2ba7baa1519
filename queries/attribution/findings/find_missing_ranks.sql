-- find_missing_ranks: ranks of the job that no usable capture holds.
--
-- Inputs: ranks, run_config, log_events, captures
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_missing_ranks AS
WITH expected AS (
    SELECT coalesce(
        (SELECT expected_ranks FROM run_config),
        (SELECT max(try_cast(regexp_extract(text, '=(\d+)$', 1) AS BIGINT)) FROM log_events WHERE code = 'WORLD_SIZE')
    ) AS n
),
absent AS (
    SELECT list(i.rank ORDER BY i.rank) AS ranks
    FROM expected AS e, unnest(range(0, coalesce(e.n, 0))) AS i(rank)
    WHERE i.rank NOT IN (SELECT rank FROM ranks)
),
failed AS (
    SELECT count(*) AS n, any_value(name || ': ' || reason ORDER BY name) AS example FROM captures WHERE status = 'unusable'
)
SELECT
    'warning' AS severity,
    a.ranks[1] AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'ranks without a usable capture' AS measure,
    greatest(len(a.ranks), f.n) AS value,
    1 AS threshold,
    'measured_nsys' AS evidence,
    CASE WHEN len(a.ranks) > 0
        THEN printf('%d of %d ranks have no usable capture: rank %s%s%s.', len(a.ranks), e.n,
            list_aggregate(a.ranks[1:8], 'string_agg', ', '), CASE WHEN len(a.ranks) > 8 THEN ' and more' ELSE '' END,
            CASE WHEN f.n > 0 THEN '; ' || f.example ELSE '' END)
        ELSE printf('%d captures are unusable: %s.', f.n, f.example) END AS text,
    'excluded: nothing to exclude; waits are lower bounds, and means are over the ranks that are there' AS confounders,
    'mfuloss doctor says what each file holds' AS next
FROM expected AS e, absent AS a, failed AS f
WHERE coalesce(len(a.ranks), 0) > 0 OR f.n > 0;
