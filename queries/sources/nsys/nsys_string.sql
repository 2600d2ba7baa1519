-- nsys_string: what each string of the export means as the name of a kernel or of an API call.
--
-- Inputs: nsys_raw_strings
-- Output:
--   id          BIGINT   string id
--   value       VARCHAR  the string; NULL where it is (part of) an environment
--   kernel      VARCHAR  qualified function of a kernel's signature, without return type, template arguments, parameters
--   is_comm     BOOLEAN  as a kernel's name it means communication
--   api         VARCHAR  as an API's name, without version and per-thread suffixes
-- Assumes: variables nsys_comm_builtin and nsys_comm_user (NULL: none) hold regular expressions; once a string,
--   not once a row, because expressions over names cost more than all joins
CREATE OR REPLACE TEMP TABLE nsys_string AS
SELECT
    id,
    value,
    kernel,
    coalesce(regexp_matches(kernel, getvariable('nsys_comm_builtin')::VARCHAR), false)
        OR coalesce(regexp_matches(value, getvariable('nsys_comm_user')::VARCHAR), false) AS is_comm,
    regexp_replace(value, '(?:_v\d+)?(?:_pt(?:ds|sz))?(?:_v\d+)?$', '') AS api
FROM (
    SELECT
        id,
        value,
        CASE
            WHEN contains(value, '(') OR contains(value, '<')
            THEN regexp_extract(
                replace(replace(value, '(anonymous namespace)::', ''), '<unnamed>::', ''),
                '^(?:(?:void|int|bool|float|double|static|inline) )*([^<(]*)',
                1
            )
            ELSE value
        END AS kernel
    FROM nsys_raw_strings
);
