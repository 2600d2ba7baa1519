-- _nsys_api_rows: the rows of nsys_api_call from one chunk of runtime and driver calls.
--
-- Inputs: nsys_raw_runtime
-- Output: the columns of nsys_api_call
CREATE OR REPLACE TEMP VIEW _nsys_api_rows AS
SELECT
    nsys_process(globalTid) AS process,
    nsys_tid(globalTid)::INTEGER AS tid,
    start AS start_ns,
    "end" AS end_ns,
    correlationId AS correlation_id
FROM nsys_raw_runtime
WHERE correlationId <> 0;
