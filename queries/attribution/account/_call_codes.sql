-- _call_codes: which calls of the launching thread say why it does not launch, by their names.
--
-- Inputs: cuda_api, os_calls
-- Output:
--   source  VARCHAR  cuda_api or os_calls
--   name    VARCHAR  the call
--   code    BIGINT   1: waits for the GPU, or copies and waits; 1 << 20: reads or receives data; 1 << 40: another
--                    traced OS call
CREATE OR REPLACE TEMP TABLE _call_codes AS
WITH api_name AS (
    -- As a list: after SELECT DISTINCT the engine would match every row's name, and only then make them distinct.
    SELECT unnest(list(DISTINCT name)) AS name FROM cuda_api
),
os_name AS (
    SELECT unnest(list(DISTINCT name)) AS name FROM os_calls
)
SELECT 'cuda_api' AS source, name, 1::BIGINT AS code
FROM api_name
WHERE regexp_matches(name, 'Synchronize')
    OR regexp_matches(name, '^(cuda|cu)(Free|MemFree)(_|$)')
    OR (regexp_matches(name, '^(cuda|cu)Memcpy') AND NOT regexp_matches(name, 'Async|Batch|NodeParams'))
UNION ALL
SELECT
    'os_calls',
    name,
    CASE
        WHEN regexp_matches(name, '^_*(f?read|pread|readv|preadv|recv|fgets|fgetc|getline|getdelim|io_getevents)')
            THEN 1::BIGINT << 20
        ELSE 1::BIGINT << 40
    END
FROM os_name;
