-- _counter_lines: lines of a file of counter samples as text and, where they are samples, as values.
--
-- Inputs: the file in the variable counters_path, with a header
-- Output:
--   node, device, link_layer, counter  VARCHAR
--   port        BIGINT   NULL for GPUs
--   at_ns       BIGINT   ns since the UTC epoch
--   value       DOUBLE   in the counter's own unit
--   line        VARCHAR  the line
--   good        BOOLEAN  it is a sample
-- Assumes: no field holds a comma. Numbers are read from text, so that one bad line does not decide a column's type.
CREATE OR REPLACE TEMP VIEW _counter_lines AS
WITH lines AS (
    SELECT * FROM read_csv(
        getvariable('counters_path'), header = true, all_varchar = true, auto_detect = true, delim = ',', quote = '"',
        strict_mode = false, null_padding = true, ignore_errors = true
    )
)

SELECT
    nullif(trim(node), '') AS node,
    nullif(trim(device), '') AS device,
    try_cast(port AS BIGINT) AS port,
    nullif(trim(link_layer), '') AS link_layer,
    nullif(trim(counter), '') AS counter,
    try_cast(at_ns AS BIGINT) AS at_ns,
    try_cast("value" AS DOUBLE) AS "value",
    concat_ws(',', *COLUMNS(lines.*)) AS line,
    coalesce(
        trim(device) <> '' AND trim(counter) <> '' AND try_cast(at_ns AS BIGINT) IS NOT NULL
        AND isfinite(try_cast("value" AS DOUBLE)),
        false
    ) AS good
FROM lines;
