-- _queue_pairs: the queue pairs that posted, and how far their completions can be checked.
--
-- Inputs: rdma_posts, rdma_completions
-- Output:
--   qp_id       BIGINT   number of the queue pair, from 1
--   node        VARCHAR  node
--   pid         BIGINT   process
--   qp          BIGINT   queue pair number
--   unchecked   BOOLEAN  wr_ids of posts and completions can't be compared: only order pairs them
--   flushed     BOOLEAN  it saw a completion in error
-- Assumes: a chain is recorded with the wr_id of its first request while its completion carries the last one's. Where
--          the two sides of a queue pair's chains have next to no id in common they can't be compared.
CREATE OR REPLACE TEMP TABLE _queue_pairs AS
WITH posted AS (
    SELECT node, pid, qp, count(*) FILTER (wr_id IS NULL) AS without_id,
        count(*) FILTER (n_wr > 1 AND signaled) AS chains
    FROM rdma_posts
    GROUP BY ALL
),
completed AS (
    SELECT node, pid, qp, count(*) AS n, count(*) FILTER (wr_id IS NULL) AS without_id, max(status) AS worst_status
    FROM rdma_completions
    GROUP BY ALL
),
hits AS (
    SELECT c.node, c.pid, c.qp, count(*) AS n
    FROM rdma_completions AS c
    SEMI JOIN (SELECT DISTINCT node, pid, qp, wr_id FROM rdma_posts WHERE n_wr > 1 AND signaled) AS chain
        ON c.node IS NOT DISTINCT FROM chain.node AND c.pid IS NOT DISTINCT FROM chain.pid
        AND c.qp IS NOT DISTINCT FROM chain.qp AND c.wr_id = chain.wr_id
    GROUP BY ALL
)
SELECT
    row_number() OVER (ORDER BY p.node, p.pid, p.qp) AS qp_id,
    p.node,
    p.pid,
    p.qp,
    p.without_id > 0 OR coalesce(c.without_id, 0) > 0
    OR (p.chains > 0 AND 2 * coalesce(h.n, 0) < least(p.chains, coalesce(c.n, 0))) AS unchecked,
    coalesce(c.worst_status, 0) > 0 AS flushed
FROM posted AS p
LEFT JOIN completed AS c
    ON p.node IS NOT DISTINCT FROM c.node AND p.pid IS NOT DISTINCT FROM c.pid AND p.qp IS NOT DISTINCT FROM c.qp
LEFT JOIN hits AS h
    ON p.node IS NOT DISTINCT FROM h.node AND p.pid IS NOT DISTINCT FROM h.pid AND p.qp IS NOT DISTINCT FROM h.qp;
