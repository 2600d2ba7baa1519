-- _ebpf_posts: rows of rdma_posts from one block: calls recorded in one record (posts_in) or in several (_ebpf_calls).
--
-- Inputs: posts_in, _ebpf_calls, ebpf_block, ebpf_capture, pid_ranks, known_qps
-- Output: the columns of rdma_posts without node and source; nic as in known_qps, opcode as the number
-- Assumes: n_wr is NULL where a tool does not follow the chain. The probe's own cost moves the entry later and the return
-- earlier, never past each other. A call whose return was lost keeps exit_ns NULL.
CREATE OR REPLACE TEMP VIEW _ebpf_posts AS
WITH joined AS (
    SELECT
        min(at_ns) FILTER (WHERE kind = 'enter') AS enter_ns,
        min(at_ns) FILTER (WHERE kind = 'exit') AS exit_ns,
        min(at_ns) FILTER (WHERE kind = 'doorbell') AS doorbell_ns,
        any_value(pid) FILTER (WHERE kind = 'enter') AS pid,
        tid,
        any_value(cpu) FILTER (WHERE kind = 'enter') AS cpu,
        any_value(qp) FILTER (WHERE kind = 'enter') AS qp,
        any_value(wr_id) FILTER (WHERE kind = 'enter') AS wr_id,
        any_value(opcode) FILTER (WHERE kind = 'enter') AS opcode,
        any_value(flags) FILTER (WHERE kind = 'enter') AS flags,
        any_value(n_wr) FILTER (WHERE kind = 'enter') AS n_wr,
        any_value(bytes) FILTER (WHERE kind = 'enter') AS bytes,
        arg_min(ret, at_ns) FILTER (WHERE kind = 'exit') AS ret
    FROM _ebpf_calls
    WHERE whole
    GROUP BY tid, call
    ORDER BY min(line)
),

posts AS (
    SELECT *, NULL::BIGINT AS doorbell_ns FROM posts_in
    UNION ALL BY NAME
    FROM joined
)

SELECT
    r.rank,
    p.pid,
    p.tid,
    p.cpu,
    q.nic,
    p.qp,
    p.wr_id,
    p.opcode,
    p.n_wr,
    p.bytes,
    (p.flags & 2) <> 0 AS signaled,
    greatest(p.enter_ns, least(p.enter_ns + c.probe_entry_ns, p.exit_ns - c.probe_exit_ns)) AS enter_ns,
    CASE
        WHEN p.exit_ns IS NOT NULL THEN greatest(p.exit_ns - c.probe_exit_ns, least(p.enter_ns, p.exit_ns))
    END AS exit_ns,
    p.ret,
    p.doorbell_ns
FROM posts AS p
CROSS JOIN ebpf_capture AS c
LEFT JOIN pid_ranks AS r ON p.pid = r.pid
LEFT JOIN known_qps AS q ON p.pid = q.pid AND p.qp = q.qp;
