-- _inspector_comm_ops: rows of comm_ops from NCCL Inspector.
--
-- Inputs: nccl_events (from _inspector_events), pid_ranks
-- Output: columns of comm_ops
-- Assumes: a duration without a time is not placed: start_ns and end_ns stay NULL.
CREATE OR REPLACE TEMP VIEW _inspector_comm_ops AS
SELECT r.rank, e.comm_id, e.seq, e.op, e.bytes, e.n_ranks, e.start_ns, e.end_ns, 'nccl_inspector' AS source
FROM nccl_events AS e
LEFT JOIN pid_ranks AS r ON e.pid = r.pid;
