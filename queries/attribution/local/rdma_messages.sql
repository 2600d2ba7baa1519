-- rdma_messages: a post joined to its completion, FIFO per (node, pid, qp), in the operation and step it was posted in.
--
-- Inputs: _posts, _pairs, _wakeups, _op_windows, steps, ranks, nics, rdma_qps
-- Output:
--   the columns of the lake table; service_start_ns, service_end_ns and chain are NULL (they need beta: _served_messages)
--   complete_ns          BIGINT   completion seen, ns; NULL: lost or after the capture
--   released_ns          BIGINT   not in flight any more, ns: complete_ns, or for a lost one the next completion seen
--   outstanding_at_post  BIGINT   messages of the queue pair in flight at enter_ns
--   blocked              BOOLEAN  posted after the completion of the one before was seen, nothing else in flight, and
--                                 the thread was not woken in between
-- Assumes: a queue pair completes in order, so released_ns does not fall with post_no and the number in flight is
--          (post_no - 1) minus the last post released: a lookup, no self join.
-- Example: SELECT nic, count(*), avg(complete_ns - exit_ns) FROM rdma_messages GROUP BY nic;
CREATE OR REPLACE TEMP TABLE rdma_messages AS
WITH joined AS (
    SELECT
        p.*,
        d.seen_ns AS complete_ns,
        d.status,
        min(d.seen_ns) OVER (
            PARTITION BY p.qp_id ORDER BY p.post_no DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS released_ns
    FROM _posts AS p
    LEFT JOIN _pairs AS d ON p.qp_id = d.qp_id AND p.done_no = d.done_no
),
releases AS (
    SELECT qp_id, released_ns, max(post_no) AS post_no FROM joined WHERE released_ns IS NOT NULL GROUP BY ALL
),
counted AS (
    SELECT
        j.*,
        j.post_no - 1 - least(coalesce(r.post_no, 0), j.post_no - 1) AS outstanding_at_post,
        lag(j.complete_ns) OVER (PARTITION BY j.qp_id ORDER BY j.post_no) AS complete_before_ns
    FROM joined AS j
    ASOF LEFT JOIN releases AS r ON j.qp_id = r.qp_id AND j.enter_ns >= r.released_ns
),
woken AS (
    SELECT c.*, w.at_ns AS woken_ns
    FROM counted AS c
    ASOF LEFT JOIN _wakeups AS w ON c.node = w.node AND c.tid = w.tid AND c.enter_ns >= w.at_ns
),
in_operation AS (
    SELECT m.*, CASE WHEN m.enter_ns < o.end_ns THEN o.op_id END AS op_id
    FROM woken AS m
    ASOF LEFT JOIN _op_windows AS o ON m.rank = o.rank AND m.enter_ns >= o.start_ns
),
in_step AS (
    SELECT m.*, CASE WHEN m.enter_ns < s.end_ns THEN s.step END AS step
    FROM in_operation AS m
    ASOF LEFT JOIN steps AS s ON m.rank = s.rank AND m.enter_ns >= s.start_ns
),
devices AS (
    SELECT node, pid, qp, min(nic) AS nic FROM rdma_qps GROUP BY ALL
)
SELECT
    m.node,
    m.rank,
    m.pid,
    m.tid,
    coalesce(m.nic, d.nic, n.nic, r.nic) AS nic,
    m.qp,
    m.wr_id,
    m.bytes,
    m.opcode,
    m.enter_ns,
    m.exit_ns,
    m.complete_ns,
    m.outstanding_at_post,
    m.outstanding_at_post = 0
    AND coalesce(m.complete_before_ns <= m.enter_ns, false)
    AND coalesce(m.woken_ns <= m.complete_before_ns, true) AS blocked,
    m.status,
    CASE
        WHEN m.opcode IN ('RDMA_WRITE', 'RDMA_WRITE_WITH_IMM') THEN 'write'
        WHEN m.opcode = 'RDMA_READ' THEN 'read'
        WHEN m.opcode LIKE 'ATOMIC%' THEN 'atomic'
        WHEN m.opcode LIKE 'SEND%' THEN 'send'
    END AS opcode_class,
    NULL::BIGINT AS service_start_ns,
    NULL::BIGINT AS service_end_ns,
    NULL::BOOLEAN AS chain,
    m.released_ns,
    m.doorbell_ns,
    m.step,
    m.op_id
FROM in_step AS m
LEFT JOIN devices AS d
    ON m.nic IS NULL AND m.node IS NOT DISTINCT FROM d.node AND m.pid IS NOT DISTINCT FROM d.pid
    AND m.qp IS NOT DISTINCT FROM d.qp
LEFT JOIN nics AS n ON m.rank = n.rank
LEFT JOIN ranks AS r ON m.rank = r.rank;
