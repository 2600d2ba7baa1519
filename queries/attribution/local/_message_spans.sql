-- _message_spans: until when each operation of a rank has messages open, by receiver.
--
-- Inputs: rdma_messages, rdma_qps
-- Output:
--   rank              BIGINT   rank
--   op_id             BIGINT   operation that the messages belong to (_operations)
--   peer_rank         BIGINT   receiver; NULL where the queue pair's other end is unknown
--   messages          BIGINT   how many
--   first_enter_ns    BIGINT   first post
--   last_complete_ns  BIGINT   last message out of flight; NULL where none was seen to be
-- Assumes: rdma_messages as the local stage makes it, with op_id and released_ns.
CREATE OR REPLACE TEMP TABLE _message_spans AS
WITH peers AS (
    SELECT node, pid, qp, max(peer_rank) AS peer_rank
    FROM rdma_qps
    GROUP BY ALL
    HAVING count(DISTINCT peer_rank) = 1
)
SELECT m.rank, m.op_id, p.peer_rank, count(*) AS messages,
    min(m.enter_ns) AS first_enter_ns, max(m.released_ns) AS last_complete_ns
FROM rdma_messages AS m
LEFT JOIN peers AS p
    ON m.node IS NOT DISTINCT FROM p.node AND m.pid IS NOT DISTINCT FROM p.pid AND m.qp IS NOT DISTINCT FROM p.qp
WHERE m.op_id IS NOT NULL
GROUP BY ALL
ORDER BY m.rank, m.op_id, p.peer_rank;
