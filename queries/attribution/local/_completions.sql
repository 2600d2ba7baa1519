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
--          have no opcode and are sorted out by their wr_id.
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
)
SELECT c.*, coalesce(p.match_id = c.match_id AND p.enter_ns <= c.seen_ns, false) AS in_step
FROM numbered AS c
LEFT JOIN _posts AS p ON p.asks AND c.qp_id = p.qp_id AND c.seen_no = p.done_no;
