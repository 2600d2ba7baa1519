-- nsys_copy_op: rows of gpu_ops for copies.
--
-- Inputs: nsys_raw_memcpy (by nsys_launched), nsys_copy_kind
-- Output: the columns of gpu_ops, and process
-- Assumes: copies of unified memory have correlation, context and stream 0: nobody launched them, launch NULL
CREATE OR REPLACE TEMP VIEW nsys_copy_op AS
SELECT
    rank,
    device,
    context,
    stream,
    start_ns,
    end_ns,
    'copy' AS op_class,
    coalesce(n.label, 'Unknown') AS name,
    NULL::VARCHAR AS comm_op,
    bytes,
    coalesce(n.label, 'Unknown') AS copy_kind,
    correlation_id,
    nsys_graph(graphNodeId) AS graph_id,
    nsys_unsigned(nullif(graphNodeId, 0)) AS graph_node_id,
    launch_start_ns,
    launch_end_ns,
    launch_tid,
    process
FROM nsys_launched('nsys_raw_memcpy') AS k
LEFT JOIN nsys_copy_kind AS n ON n.id = k.copyKind;
