-- _completions: completions of sends, numbered per queue pair.
--
-- Inputs: rdma_completions, _queue_pairs, _posts
-- Output:
--   qp_id       BIGINT   queue pair (_queue_pairs)
--   seen_no     BIGINT   ordinal in the queue pair, from 1
--   match_id    UBIGINT  wr_id; 0 where it can't be checked
--   seen_ns     BIGINT   return of the poll that saw it, ns
--   status      BIGINT   ibv_wc_status
--   in_step     BOOLEAN  it is in step with the completable post of its ordinal: same id, posted before it was seen
-- Assumes: a queue pair's receives complete into the same queue (NCCL does that): they are none of ours. Those in error
--          have no opcode and are sorted out by their wr_id. Completions of one poll carry one time, and the order of
--          their ids need not be that of their posts (ids wrap): where the posts of their ordinals have just their
--          ids, they take their posts' order.
CREATE OR REPLACE TEMP TABLE _completions AS
WITH numbered AS (
    SELECT
        q.qp_id,
        row_number() OVER (PARTITION BY q.qp_id ORDER BY c.seen_ns, c.wr_id, c.status) AS seen_no,
        CASE WHEN q.unchecked THEN 0 ELSE c.wr_id END AS match_id,
        c.seen_ns,
        c.status
    FROM rdma_completions AS c
    JOIN _queue_pairs AS q
        ON c.node IS NOT DISTINCT FROM q.node AND c.pid IS NOT DISTINCT FROM q.pid AND c.qp IS NOT DISTINCT FROM q.qp
    WHERE coalesce(c.opcode, '') NOT IN ('RECV', 'RECV_RDMA_WITH_IMM', '128', '129')
),
checked AS MATERIALIZED (
    SELECT
        c.*,
        p.match_id AS post_match_id,
        p.enter_ns,
        coalesce(p.match_id = c.match_id AND p.enter_ns <= c.seen_ns, false) AS in_step
    FROM numbered AS c
    LEFT JOIN _posts AS p ON p.asks AND c.qp_id = p.qp_id AND c.seen_no = p.done_no
),
stray AS (
    SELECT * FROM checked WHERE NOT in_step
),
-- An id that is twice in one poll could go either way: then the ids say nothing.
stray_post AS (
    SELECT qp_id, seen_ns, post_match_id AS match_id, min(seen_no) AS own_no
    FROM stray
    WHERE enter_ns <= seen_ns
    GROUP BY ALL
    HAVING count(*) = 1
),
moved AS (
    SELECT
        s.qp_id,
        s.seen_no,
        p.own_no,
        count(p.own_no) OVER poll = count(*) OVER poll AND count(DISTINCT s.match_id) OVER poll = count(*) OVER poll AS whole
    FROM stray AS s
    LEFT JOIN stray_post AS p ON s.qp_id = p.qp_id AND s.seen_ns = p.seen_ns AND s.match_id = p.match_id
    WINDOW poll AS (PARTITION BY s.qp_id, s.seen_ns)
)
SELECT
    c.qp_id,
    coalesce(m.own_no, c.seen_no) AS seen_no,
    c.match_id,
    c.seen_ns,
    c.status,
    c.in_step OR m.own_no IS NOT NULL AS in_step
FROM checked AS c
LEFT JOIN (FROM moved WHERE whole) AS m ON c.qp_id = m.qp_id AND c.seen_no = m.seen_no;
