-- _posts: successful posts, numbered per queue pair, each with the completion that it waits for.
--
-- Inputs: rdma_posts, rdma_completions, _queue_pairs
-- Output:
--   qp_id         BIGINT   queue pair (_queue_pairs)
--   post_no       BIGINT   ordinal of the post in its queue pair, from 1
--   done_no       BIGINT   which of the queue pair's completable posts completes it: itself, or the next one
--   asks          BOOLEAN  completable: it asks for a completion itself
--   match_id      UBIGINT  what its completion's wr_id must equal; 0 where that can't be checked
--   and node, rank, pid, tid, nic, qp, wr_id, opcode, bytes, enter_ns, exit_ns, doorbell_ns of rdma_posts
-- Assumes: post_send serialises on the queue pair, so entries are in the order of posting. A queue pair in error is
--          flushed: then an unsignalled request that was still in flight has a completion of its own.
CREATE OR REPLACE TEMP TABLE _posts AS
WITH in_error AS (
    SELECT q.qp_id, c.wr_id, min(c.seen_ns) AS seen_ns
    FROM rdma_completions AS c
    JOIN _queue_pairs AS q
        ON c.node IS NOT DISTINCT FROM q.node AND c.pid IS NOT DISTINCT FROM q.pid AND c.qp IS NOT DISTINCT FROM q.qp
    WHERE q.flushed AND c.status <> 0
    GROUP BY ALL
),
posted AS (
    SELECT q.qp_id, q.flushed, CASE WHEN q.unchecked THEN 0 ELSE p.wr_id END AS match_id, p.*
    FROM rdma_posts AS p
    JOIN _queue_pairs AS q
        ON p.node IS NOT DISTINCT FROM q.node AND p.pid IS NOT DISTINCT FROM q.pid AND p.qp IS NOT DISTINCT FROM q.qp
    WHERE coalesce(p.ret, 0) = 0 AND p.exit_ns >= p.enter_ns
),
flushed_posts AS (
    SELECT
        p.qp_id,
        p.enter_ns,
        p.exit_ns,
        p.wr_id
    FROM (
        SELECT
            qp_id,
            enter_ns,
            exit_ns,
            wr_id,
            signaled,
            lead(enter_ns) OVER (PARTITION BY qp_id, wr_id ORDER BY enter_ns, exit_ns) AS next_enter_ns
        FROM posted
        WHERE flushed
    ) AS p
    JOIN in_error AS e
        ON p.qp_id = e.qp_id AND p.wr_id = e.wr_id
        AND p.enter_ns <= e.seen_ns AND coalesce(p.next_enter_ns > e.seen_ns, true)
    WHERE NOT p.signaled
),
asking AS (
    SELECT p.*, coalesce(p.signaled, true) OR f.qp_id IS NOT NULL AS asks
    FROM posted AS p
    LEFT JOIN flushed_posts AS f
        ON p.qp_id = f.qp_id AND p.wr_id = f.wr_id AND p.enter_ns = f.enter_ns AND p.exit_ns = f.exit_ns
)
SELECT
    qp_id,
    row_number() OVER in_order AS post_no,
    sum(asks::BIGINT) OVER in_order + (NOT asks)::BIGINT AS done_no,
    asks,
    match_id,
    node,
    rank,
    pid,
    tid,
    nic,
    qp,
    wr_id,
    opcode,
    bytes,
    enter_ns,
    exit_ns,
    doorbell_ns
FROM asking
WINDOW in_order AS (
    PARTITION BY qp_id
    ORDER BY enter_ns, exit_ns, tid, wr_id, opcode, bytes
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
);
