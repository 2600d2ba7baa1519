-- nsys_copy_op: rows of gpu_ops for copies.
--
-- Inputs: nsys_raw_memcpy, nsys_copy_kind, nsys_rank, nsys_launch
-- Output: the columns of gpu_ops, and process
-- Assumes: copies of unified memory have correlation, context and stream 0: nobody launched them, launch NULL
CREATE OR REPLACE TEMP VIEW nsys_copy_op AS
SELECT
    r.rank,
    k.deviceId AS device,
    k.contextId AS context,
    k.streamId AS stream,
    nsys_at(k.start) AS start_ns,
    nsys_at(k."end") AS end_ns,
    'copy' AS op_class,
    coalesce(n.label, 'Unknown') AS name,
    NULL::VARCHAR AS comm_op,
    k.bytes,
    coalesce(n.label, 'Unknown') AS copy_kind,
    nullif(k.correlationId, 0) AS correlation_id,
    nsys_graph(k.graphNodeId) AS graph_id,
    nsys_unsigned(nullif(k.graphNodeId, 0)) AS graph_node_id,
    nsys_at(l.start_ns) AS launch_start_ns,
    nsys_at(l.end_ns) AS launch_end_ns,
    l.tid::BIGINT AS launch_tid,
    k.process
FROM (
    SELECT *, coalesce(nsys_process(globalPid), getvariable('nsys_sole_process')::BIGINT) AS process
    FROM nsys_raw_memcpy
    WHERE start IS NOT NULL AND "end" IS NOT NULL
) AS k
LEFT JOIN nsys_launch AS l
    ON l.correlation_id = k.correlationId
    AND l.process = k.process
LEFT JOIN nsys_copy_kind AS n ON n.id = k.copyKind
LEFT JOIN nsys_rank AS r ON r.process = k.process;
