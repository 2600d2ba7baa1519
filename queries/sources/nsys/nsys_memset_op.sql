-- nsys_memset_op: rows of gpu_ops for memsets.
--
-- Inputs: nsys_raw_memset (by nsys_launched)
-- Output: the columns of gpu_ops, and process
CREATE OR REPLACE TEMP VIEW nsys_memset_op AS
SELECT
    rank,
    device,
    context,
    stream,
    start_ns,
    end_ns,
    'copy' AS op_class,
    'Memset' AS name,
    NULL::VARCHAR AS comm_op,
    bytes,
    'Memset' AS copy_kind,
    correlation_id,
    nsys_graph(graphNodeId) AS graph_id,
    nsys_unsigned(nullif(graphNodeId, 0)) AS graph_node_id,
    launch_start_ns,
    launch_end_ns,
    launch_tid,
    process
FROM nsys_launched('nsys_raw_memset');
