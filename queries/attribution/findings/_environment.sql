-- _environment: NCCL and NVSHMEM variables that were captured, with the library's version where a log says it.
--
-- Inputs: log_events
-- Output:
--   library  VARCHAR  NCCL or NVSHMEM
--   name     VARCHAR  variable
--   value    VARCHAR  its value
--   node     VARCHAR  a node that has it
--   rank     BIGINT   the lowest rank that has it; NULL where none is known
--   n        BIGINT   ranks or nodes that have it
--   version  BIGINT   newest version of the library that a log names, 1000 * major + minor; NULL: no log says
CREATE OR REPLACE TEMP TABLE _environment AS
WITH versions AS (
    SELECT library, max(1000 * major + minor) AS version
    FROM (
        SELECT upper(source) AS library,
            try_cast(regexp_extract(text, '(?:NCCL version|NVSHMEM(?: version)?)[ v:]*([0-9]+)[.][0-9]+', 1) AS BIGINT) AS major,
            try_cast(regexp_extract(text, '(?:NCCL version|NVSHMEM(?: version)?)[ v:]*[0-9]+[.]([0-9]+)', 1) AS BIGINT) AS minor
        FROM log_events
        WHERE code IN ('nccl_version', 'nvshmem_version')
    )
    GROUP BY library
),
variables AS (
    SELECT regexp_extract(code, '^(NCCL|NVSHMEM)_', 1) AS library, code AS name,
        trim(regexp_extract(text, '=(.*)$', 1)) AS value, node, rank
    FROM log_events
    WHERE source = 'env' AND regexp_matches(code, '^(NCCL|NVSHMEM)_')
)
SELECT v.library, v.name, v.value, min(v.node) AS node, min(v.rank) AS rank,
    count(DISTINCT coalesce(v.rank::VARCHAR, v.node)) AS n, any_value(s.version) AS version
FROM variables AS v
LEFT JOIN versions AS s ON v.library = s.library
GROUP BY v.library, v.name, v.value
ORDER BY v.library, v.name, v.value;
