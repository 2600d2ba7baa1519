-- nsys_kernel_op: rows of gpu_ops for the kernels of one window.
--
-- Inputs: nsys_raw_kernel (by nsys_launched), nsys_string, nsys_comm_launch
-- Output: the columns of gpu_ops, and process, comm_tid, comm_group (the group of NCCL calls that launched it)
-- Assumes: the name of a kernel says that it communicates, never which operation it runs. demangledName gives the
--   qualified name; where a templated return type hides it, shortName stands.
CREATE OR REPLACE TEMP VIEW nsys_kernel_op AS
SELECT
    k.rank,
    k.device,
    k.context,
    k.stream,
    k.start_ns,
    k.end_ns,
    CASE WHEN d.is_comm OR s.is_comm THEN 'comm' ELSE 'compute' END AS op_class,
    coalesce(CASE WHEN s.value IS NULL OR ends_with(d.kernel, s.value) THEN d.kernel ELSE s.value END, 'unknown') AS name,
    CASE WHEN d.is_comm OR s.is_comm THEN coalesce(c.op, 'unknown') END AS comm_op,
    c.bytes,
    NULL::VARCHAR AS copy_kind,
    k.correlation_id,
    coalesce(nullif(k.graphId, 0), nsys_graph(k.graphNodeId)) AS graph_id,
    nsys_unsigned(nullif(k.graphNodeId, 0)) AS graph_node_id,
    k.launch_start_ns,
    k.launch_end_ns,
    k.launch_tid,
    k.process,
    c.tid::BIGINT AS comm_tid,
    c.group_id::BIGINT AS comm_group
FROM nsys_launched('nsys_raw_kernel') AS k
LEFT JOIN nsys_string AS d ON d.id = k.demangledName
LEFT JOIN nsys_string AS s ON s.id = k.shortName
LEFT JOIN nsys_comm_launch AS c
    ON (d.is_comm OR s.is_comm) AND c.correlation_id = k.correlationId AND c.process = k.process;
