-- nsys_launch: the API call behind each correlation id of a process.
--
-- Inputs: nsys_api_call
-- Output:
--   process, correlation_id, tid BIGINT
--   start_ns, end_ns BIGINT  ns since the session's start
-- Assumes: correlation ids repeat across processes, and within one where a runtime call and the driver call inside
--   it share an id (some exports hold each call twice): the outermost call stands
CREATE OR REPLACE TEMP TABLE nsys_launch AS
SELECT process, correlation_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, min(tid) AS tid
FROM nsys_api_call
WHERE correlation_id <> 0
GROUP BY process, correlation_id;
