-- _ebpf_completions: rows of rdma_completions from one block.
--
-- Inputs: polls_in, pid_ranks, known_qps
-- Output: the columns of rdma_completions without node; nic as in known_qps, opcode as the number
CREATE OR REPLACE TEMP VIEW _ebpf_completions AS
SELECT
    r.rank,
    p.pid,
    p.tid,
    q.nic,
    p.qp,
    p.wr_id,
    p.status,
    p.opcode,
    p.at_ns AS seen_ns
FROM polls_in AS p
LEFT JOIN pid_ranks AS r ON p.pid = r.pid
LEFT JOIN known_qps AS q ON p.pid = q.pid AND p.qp = q.qp;
