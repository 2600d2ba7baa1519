-- nsys_launch: the API call behind a correlation id of a process, for the ids of the chunk of GPU work at hand.
--
-- Inputs: nsys_api_call
-- Output:
--   process, correlation_id, tid BIGINT
--   start_ns, end_ns BIGINT  ns since the session's start
-- Assumes: variables nsys_first_correlation, nsys_last_correlation, nsys_first_process and nsys_last_process bound the
--   chunk's ids: ids rise with time, so a chunk joins to a small part of the calls and memory stays flat. Correlation ids repeat across processes, and
--   within one where a runtime call and the driver call inside it share an id (some exports hold each call twice):
--   the outermost call stands.
CREATE OR REPLACE TEMP VIEW nsys_launch AS
SELECT process, correlation_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns, min(tid) AS tid
FROM nsys_api_call
WHERE correlation_id BETWEEN getvariable('nsys_first_correlation')::BIGINT
    AND getvariable('nsys_last_correlation')::BIGINT
    AND correlation_id <> 0
    AND process BETWEEN getvariable('nsys_first_process')::BIGINT AND getvariable('nsys_last_process')::BIGINT
GROUP BY process, correlation_id;
