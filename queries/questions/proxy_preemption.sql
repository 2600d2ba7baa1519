-- proxy_preemption: who ran while a thread that posts messages was ready to run.
--
-- Inputs: rdma_posts, thread_states
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run         VARCHAR  run
--   node        VARCHAR  node
--   rank        BIGINT   rank
--   proxy_tid   BIGINT   thread that posts messages
--   other_tid   BIGINT   thread that ran in its place; NULL where unknown
--   other_name  VARCHAR  its name; NULL where unknown
--   n_slices    BIGINT   times that it had to wait for its core
--   lost_ns     BIGINT   time that it had to wait, ns
--   longest_ns  BIGINT   longest of them, ns
-- Example: FROM proxy_preemption();
CREATE OR REPLACE MACRO proxy_preemption(in_run := NULL) AS TABLE
WITH proxies AS (
    SELECT DISTINCT p.run, p.node, p.rank, p.tid FROM rdma_posts AS p WHERE in_run IS NULL OR p.run = in_run
),
names AS (
    SELECT t.run, t.node, t.tid, min(t.name) AS name FROM thread_states AS t
    WHERE (in_run IS NULL OR t.run = in_run) AND t.name IS NOT NULL
    GROUP BY ALL
)
SELECT p.run, p.node, p.rank, p.tid AS proxy_tid, t.other_tid, n.name AS other_name, count(*) AS n_slices,
    sum(t.end_ns - t.start_ns)::BIGINT AS lost_ns, max(t.end_ns - t.start_ns) AS longest_ns
FROM proxies AS p
JOIN thread_states AS t ON p.run = t.run AND p.node = t.node AND p.tid = t.tid AND t.state = 'runnable'
LEFT JOIN names AS n ON t.run = n.run AND t.node = n.node AND t.other_tid = n.tid
GROUP BY p.run, p.node, p.rank, p.tid, t.other_tid, n.name
ORDER BY p.run, lost_ns DESC, p.node, p.rank, p.tid, t.other_tid;
