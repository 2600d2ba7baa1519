-- _ebpf_completions: rows of rdma_completions from one block.
--
-- Inputs: polls_in, ebpf_capture, pid_ranks, known_qps
-- Output: the columns of rdma_completions
CREATE OR REPLACE TEMP VIEW _ebpf_completions AS
SELECT
    c.node,
    r.rank,
    p.pid,
    p.tid,
    q.nic,
    p.qp,
    p.wr_id,
    p.status,
    _ibv_wc_opcode(p.opcode) AS opcode,
    p.at_ns AS seen_ns
FROM polls_in AS p
CROSS JOIN ebpf_capture AS c
LEFT JOIN pid_ranks AS r ON p.pid = r.pid
LEFT JOIN known_qps AS q ON p.pid = q.pid AND p.qp = q.qp;
