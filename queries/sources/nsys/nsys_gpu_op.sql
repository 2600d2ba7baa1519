-- nsys_gpu_op: rows of gpu_ops for one window of time: kernels, graphs, copies and memsets, in order.
--
-- Inputs: nsys_kernel_op, nsys_graph_op, nsys_copy_op, nsys_memset_op
-- Output: the columns of gpu_ops, and process, comm_tid, comm_group
-- Assumes: the views stand over the window's rows; windows follow one another in time, so that a capture of one
--   process comes out in the lake's order and need not be sorted again
CREATE OR REPLACE TEMP VIEW nsys_gpu_op AS
SELECT * FROM nsys_kernel_op
UNION ALL BY NAME SELECT * FROM nsys_graph_op
UNION ALL BY NAME SELECT * FROM nsys_copy_op
UNION ALL BY NAME SELECT * FROM nsys_memset_op
ORDER BY rank NULLS FIRST, start_ns;
