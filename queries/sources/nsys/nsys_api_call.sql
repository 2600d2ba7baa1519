-- nsys_api_call: CUDA runtime and driver calls, staged for the join of GPU work to its launch.
--
-- Inputs: none
-- Output:
--   process     BIGINT   process
--   tid         INTEGER  thread
--   start_ns, end_ns BIGINT  ns since the session's start
--   correlation_id BIGINT  joins to GPU work within the process
-- Assumes: filled chunk by chunk by _nsys_api_rows
CREATE OR REPLACE TABLE nsys_api_call (
    process BIGINT, tid INTEGER, start_ns BIGINT, end_ns BIGINT, correlation_id BIGINT
);
