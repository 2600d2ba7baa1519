-- nsys_cuda_api: rows of cuda_api.
--
-- Inputs: nsys_api_call, nsys_string, nsys_rank
-- Output: the columns of cuda_api
CREATE OR REPLACE TEMP VIEW nsys_cuda_api AS
SELECT
    r.rank,
    c.tid::BIGINT AS tid,
    nsys_at(c.start_ns) AS start_ns,
    nsys_at(c.end_ns) AS end_ns,
    coalesce(s.api, 'unknown') AS name,
    nullif(c.correlation_id, 0) AS correlation_id
FROM nsys_api_call AS c
LEFT JOIN nsys_string AS s ON s.id = c.name_id
LEFT JOIN nsys_rank AS r ON r.process = c.process;
