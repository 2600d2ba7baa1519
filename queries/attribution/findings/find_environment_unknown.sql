-- find_environment_unknown: a variable is set that the library does not read, by its name or by its version.
--
-- Inputs: _environment, known_variables, known_families, known_libraries, thresholds
-- Output:
--   severity    VARCHAR  info or warning
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: nothing is said of a library newer than the tables; NCCL_IB_GDA_ENABLE is find_environment_misread's.
CREATE OR REPLACE TEMP TABLE find_environment_unknown AS
WITH judged AS (
    SELECT e.library, e.name, min(e.node) AS node, min(e.rank) AS rank, sum(e.n) AS n, any_value(e.version) AS version
    FROM _environment AS e
    JOIN known_libraries AS l ON e.library = l.library
    WHERE coalesce(e.version <= l.newest, true) AND e.name <> 'NCCL_IB_GDA_ENABLE'
        AND NOT EXISTS (FROM known_families AS f WHERE starts_with(e.name, f.prefix))
    GROUP BY e.library, e.name
),
near AS (
    SELECT j.name, k.name AS candidate, damerau_levenshtein(j.name, k.name) AS distance
    FROM judged AS j
    JOIN known_variables AS k ON j.library = k.library
    WHERE j.name NOT IN (SELECT name FROM known_variables)
    QUALIFY row_number() OVER (PARTITION BY j.name ORDER BY damerau_levenshtein(j.name, k.name), k.name) = 1
),
faults AS (
    SELECT j.*, n.candidate, n.distance, NULL::BIGINT AS lacking, NULL::VARCHAR AS word
    FROM judged AS j
    JOIN near AS n ON j.name = n.name
    UNION ALL
    SELECT j.*, NULL, NULL, CASE WHEN j.version < k.lacking_before THEN k.lacking_before ELSE k.lacking_after END,
        CASE WHEN j.version < k.lacking_before THEN 'not yet' ELSE 'no more' END
    FROM judged AS j
    JOIN known_variables AS k ON j.name = k.name
    WHERE j.version < k.lacking_before OR j.version >= k.lacking_after
)
SELECT
    CASE WHEN word IS NOT NULL OR distance <= threshold('environment_unknown', 'distance') THEN 'warning' ELSE 'info' END AS severity,
    rank, node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'ranks or nodes with a variable that the library does not read' AS measure,
    n AS value,
    1 AS threshold,
    'inferred' AS evidence,
    CASE WHEN word IS NOT NULL
        THEN printf('%s is set, but %s %d.%d does %s read it (%d.%d lacks it).', name, library, version // 1000, version % 1000, word,
            lacking // 1000, lacking % 1000)
        WHEN distance <= threshold('environment_unknown', 'distance')
        THEN printf('%s is set, and no known version of %s reads it: %s is the nearest name.', name, library, candidate)
        ELSE printf('%s is set, and no known version of %s reads it; no known name is near.', name, library) END AS text,
    CASE WHEN version IS NULL THEN 'excluded: names of plugins and frameworks that are known; not excluded: a library newer than the table (no log says its version)'
        ELSE 'excluded: a library newer than the table (a log says its version), names of plugins and frameworks that are known; '
            || 'not excluded: a plugin or program with a name of its own' END AS confounders,
    'correct the name or remove the variable: it has no effect as it is' AS next
FROM faults;
