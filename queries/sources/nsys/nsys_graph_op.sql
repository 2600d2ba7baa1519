-- nsys_graph_op: rows of gpu_ops for CUDA graphs that were traced as a whole (graph mode): opaque, one row a launch.
--
-- Inputs: nsys_raw_graph (by nsys_launched)
-- Output: the columns of gpu_ops, and process
CREATE OR REPLACE TEMP VIEW nsys_graph_op AS
SELECT
    rank,
    device,
    context,
    stream,
    start_ns,
    end_ns,
    'compute' AS op_class,
    'CUDA graph ' || coalesce(graphExecId, graphId, 0) AS name,
    NULL::VARCHAR AS comm_op,
    NULL::BIGINT AS bytes,
    NULL::VARCHAR AS copy_kind,
    correlation_id,
    coalesce(graphExecId, graphId) AS graph_id,
    NULL::UBIGINT AS graph_node_id,
    launch_start_ns,
    launch_end_ns,
    launch_tid,
    process
FROM nsys_launched('nsys_raw_graph');
