-- find_proxy_starved: a proxy thread that was ready to run did not get its core.
--
-- Inputs: thread_states, rdma_posts, ranks, _counted_steps, steps, _rank_shares, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: only slices that are longer than an interrupt or a tick count, and only inside counted steps of the thread's rank.
CREATE OR REPLACE TEMP TABLE find_proxy_starved AS
WITH proxies AS (
    SELECT DISTINCT node, rank, tid FROM rdma_posts WHERE rank IS NOT NULL
),
spans AS (
    SELECT s.rank, s.step, s.start_ns, s.end_ns FROM steps AS s JOIN _counted_steps AS c USING (rank, step)
),
slices AS (
    SELECT p.node, p.rank, p.tid, t.cpu, t.other_tid, t.start_ns, t.end_ns - t.start_ns AS lost_ns
    FROM thread_states AS t
    JOIN proxies AS p ON t.node = p.node AND t.tid = p.tid
    WHERE t.state = 'runnable' AND t.end_ns - t.start_ns >= threshold('proxy_starved', 'slice_ns')
),
inside AS (
    SELECT s.*
    FROM slices AS s
    ASOF JOIN spans AS c ON s.rank = c.rank AND s.start_ns >= c.start_ns
    WHERE s.start_ns < c.end_ns
),
names AS (
    SELECT node, tid, any_value(name) AS name FROM thread_states WHERE name IS NOT NULL GROUP BY ALL
),
taker AS (
    SELECT rank, other_tid, sum(lost_ns) AS lost_ns
    FROM inside
    WHERE other_tid IS NOT NULL
    GROUP BY rank, other_tid
    QUALIFY row_number() OVER (PARTITION BY rank ORDER BY sum(lost_ns) DESC, other_tid) = 1
),
starved AS (
    SELECT i.rank, i.node, any_value(i.tid) AS tid, any_value(i.cpu) AS cpu, count(*) AS n, sum(i.lost_ns) AS lost_ns,
        100 * sum(i.lost_ns) / any_value(r.wall_ns) AS share
    FROM inside AS i
    JOIN _rank_shares AS r ON i.rank = r.rank
    GROUP BY i.rank, i.node
)
SELECT
    CASE WHEN s.share >= threshold('proxy_starved', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    s.rank, s.node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'proxy runnable but not running, slices of 0.1 ms and more, % of step time' AS measure,
    s.share AS value,
    threshold('proxy_starved', 'share') AS threshold,
    'measured_ebpf' AS evidence,
    printf('The proxy thread %d of rank %d lost its core %d times for %.1f ms in all%s.', s.tid, s.rank, s.n, s.lost_ns / 1e6,
        CASE WHEN t.other_tid IS NULL THEN '; the capture does not say to whom'
            ELSE printf(', mostly to thread %d%s (%.0f %%)', t.other_tid, coalesce(' (' || n.name || ')', ''),
                100 * t.lost_ns / s.lost_ns) END) AS text,
    'excluded: blocked waits (the thread was runnable), interrupts and ticks (slices under 0.1 ms); '
        || 'not excluded: a hypervisor that took the core from the node' AS confounders,
    'pin the proxy to a core of its own (and keep data workers off it), or raise its priority' AS next
FROM starved AS s
LEFT JOIN taker AS t ON s.rank = t.rank
LEFT JOIN names AS n ON s.node = n.node AND t.other_tid = n.tid
WHERE s.share >= threshold('proxy_starved', 'share');
