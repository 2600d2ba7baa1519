-- nsys_launched: rows of a raw table of GPU work, with what all kinds have in common as gpu_ops names it.
--
-- Arguments: raw  name of the raw table
-- Inputs: the raw table, nsys_rank, nsys_launch
-- Output: the raw table's columns, and
--   process                      BIGINT  process; the capture's only one where the row names none
--   rank, device, context, stream, start_ns, end_ns, correlation_id, launch_start_ns, launch_end_ns, launch_tid
--                                as in gpu_ops
-- Assumes: rows without a start or an end are none; correlation 0 is no launch.
CREATE OR REPLACE TEMP MACRO nsys_launched(raw) AS TABLE
SELECT
    k.*,
    r.rank,
    k.deviceId AS device,
    k.contextId AS context,
    k.streamId AS stream,
    nsys_at(k.start) AS start_ns,
    nsys_at(k."end") AS end_ns,
    nullif(k.correlationId, 0) AS correlation_id,
    nsys_at(l.start_ns) AS launch_start_ns,
    nsys_at(l.end_ns) AS launch_end_ns,
    l.tid::BIGINT AS launch_tid
FROM (
    SELECT *, coalesce(nsys_process(globalPid), getvariable('nsys_sole_process')::BIGINT) AS process
    FROM query_table(raw)
    WHERE start IS NOT NULL AND "end" IS NOT NULL
) AS k
LEFT JOIN nsys_launch AS l ON l.correlation_id = k.correlationId AND l.process = k.process
LEFT JOIN nsys_rank AS r ON r.process = k.process;
