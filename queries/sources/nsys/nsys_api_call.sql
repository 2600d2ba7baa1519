-- nsys_api_call: CUDA runtime and driver calls, staged for cuda_api and for the join of GPU work to its launch.
--
-- Inputs: nsys_raw_runtime
-- Output:
--   process, tid, correlation_id, name_id BIGINT
--   start_ns, end_ns BIGINT  ns since the session's start
CREATE OR REPLACE TEMP TABLE nsys_api_call AS
SELECT
    nsys_process(globalTid) AS process,
    nsys_tid(globalTid)::INTEGER AS tid,
    start AS start_ns,
    "end" AS end_ns,
    correlationId AS correlation_id,
    nameId AS name_id
FROM nsys_raw_runtime;
