-- nsys_cuda_api: rows of cuda_api from one chunk of runtime and driver calls.
--
-- Inputs: nsys_raw_runtime, nsys_string, nsys_rank
-- Output: the columns of cuda_api
CREATE OR REPLACE TEMP VIEW nsys_cuda_api AS
SELECT
    r.rank,
    nsys_tid(c.globalTid) AS tid,
    nsys_at(c.start) AS start_ns,
    nsys_at(c."end") AS end_ns,
    coalesce(s.api, 'unknown') AS name,
    nullif(c.correlationId, 0) AS correlation_id
FROM nsys_raw_runtime AS c
LEFT JOIN nsys_string AS s ON s.id = c.nameId
LEFT JOIN nsys_rank AS r ON r.process = nsys_process(c.globalTid)
WHERE c.start IS NOT NULL;
