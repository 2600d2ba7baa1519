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
--          (post_no - 1) minus the last post released: a lookup, no self join. What is sorted and looked up are keys and
--          times alone; the rest of a post joins them at the end by its place in _posts, which is a table.
-- Example: SELECT nic, count(*), avg(complete_ns - exit_ns) FROM rdma_messages GROUP BY nic;
CREATE OR REPLACE TEMP TABLE rdma_messages AS
WITH joined AS (
    SELECT p.rowid AS id, p.qp_id, p.post_no, p.enter_ns, d.seen_ns AS complete_ns, d.status
    FROM _posts AS p
    LEFT JOIN _pairs AS d ON p.qp_id = d.qp_id AND p.done_no = d.done_no
),
released AS (
    SELECT
        id,
        qp_id,
        post_no,
        enter_ns,
        complete_ns,
        status,
        min(complete_ns) OVER (newest_first ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS released_ns,
        lead(complete_ns) OVER newest_first AS complete_before_ns
    FROM joined
    WINDOW newest_first AS (PARTITION BY qp_id ORDER BY post_no DESC)
),
releases AS (
    SELECT qp_id, released_ns, max(post_no) AS post_no FROM released WHERE released_ns IS NOT NULL GROUP BY ALL
),
counted AS (
    SELECT p.*, p.post_no - 1 - least(coalesce(r.post_no, 0), p.post_no - 1) AS outstanding_at_post
    FROM released AS p
    ASOF LEFT JOIN releases AS r ON p.qp_id = r.qp_id AND p.enter_ns >= r.released_ns
),
alone AS (
    SELECT c.id, p.node, p.tid, c.enter_ns, c.complete_before_ns
    FROM counted AS c
    JOIN _posts AS p ON c.id = p.rowid
    WHERE c.outstanding_at_post = 0 AND c.complete_before_ns <= c.enter_ns
),
blocked AS (
    SELECT a.id
    FROM alone AS a
    ASOF LEFT JOIN _wakeups AS w ON a.node = w.node AND a.tid = w.tid AND a.enter_ns >= w.at_ns
    WHERE coalesce(w.at_ns <= a.complete_before_ns, true)
),
in_operation AS (
    SELECT m.id, m.rank, m.enter_ns, CASE WHEN m.enter_ns < o.end_ns THEN o.op_id END AS op_id
    FROM (SELECT rowid AS id, rank, enter_ns FROM _posts) AS m
    ASOF LEFT JOIN _op_windows AS o ON m.rank = o.rank AND m.enter_ns >= o.start_ns
),
in_step AS (
    SELECT m.id, m.op_id, CASE WHEN m.enter_ns < s.end_ns THEN s.step END AS step
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
    c.complete_ns,
    c.outstanding_at_post,
    b.id IS NOT NULL AS blocked,
    c.status,
    CASE
        WHEN m.opcode IN ('RDMA_WRITE', 'RDMA_WRITE_WITH_IMM') THEN 'write'
        WHEN m.opcode = 'RDMA_READ' THEN 'read'
        WHEN m.opcode LIKE 'ATOMIC%' THEN 'atomic'
        WHEN m.opcode LIKE 'SEND%' THEN 'send'
    END AS opcode_class,
    NULL::BIGINT AS service_start_ns,
    NULL::BIGINT AS service_end_ns,
    NULL::BOOLEAN AS chain,
    c.released_ns,
    m.doorbell_ns,
    s.step,
    s.op_id
FROM _posts AS m
JOIN counted AS c ON m.rowid = c.id
JOIN in_step AS s ON m.rowid = s.id
LEFT JOIN blocked AS b ON m.rowid = b.id
LEFT JOIN devices AS d
    ON m.nic IS NULL AND m.node IS NOT DISTINCT FROM d.node AND m.pid IS NOT DISTINCT FROM d.pid
    AND m.qp IS NOT DISTINCT FROM d.qp
LEFT JOIN nics AS n ON m.rank = n.rank
LEFT JOIN ranks AS r ON m.rank = r.rank;
