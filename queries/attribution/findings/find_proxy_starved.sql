-- find_proxy_starved: a proxy thread that was ready to run did not get its core.
--
-- Inputs: thread_states, rdma_posts, ranks, _counted_steps, steps, _rank_shares, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: only slices that are longer than an interrupt or a tick count, and of them what lies inside counted steps of the
--          thread's rank: the counted time up to their end less that up to their start. A rank with several proxy threads is
--          judged by the one that lost most: threads wait for their cores at the same time.
CREATE OR REPLACE TEMP TABLE find_proxy_starved AS
WITH proxies AS (
    SELECT DISTINCT node, rank, tid FROM rdma_posts WHERE rank IS NOT NULL
),
spans AS (
    SELECT s.rank, s.start_ns, s.end_ns,
        sum(s.end_ns - s.start_ns) OVER (PARTITION BY s.rank ORDER BY s.start_ns, s.step)::BIGINT - (s.end_ns - s.start_ns) AS before_ns
    FROM steps AS s
    JOIN _counted_steps AS c USING (rank, step)
),
slices AS (
    SELECT p.node, p.rank, p.tid, t.other_tid, t.start_ns, t.end_ns
    FROM thread_states AS t
    JOIN proxies AS p ON t.node = p.node AND t.tid = p.tid
    WHERE t.state = 'runnable' AND t.end_ns - t.start_ns >= threshold('proxy_starved', 'slice_ns')
),
inside AS (
    SELECT s.node, s.rank, s.tid, s.other_tid,
        coalesce(till.before_ns + least(s.end_ns, till.end_ns) - till.start_ns, 0)
        - coalesce(since.before_ns + least(s.start_ns, since.end_ns) - since.start_ns, 0) AS lost_ns
    FROM slices AS s
    ASOF LEFT JOIN spans AS till ON s.rank = till.rank AND s.end_ns >= till.start_ns
    ASOF LEFT JOIN spans AS since ON s.rank = since.rank AND s.start_ns >= since.start_ns
),
names AS (
    SELECT node, tid, any_value(name) AS name FROM thread_states WHERE name IS NOT NULL GROUP BY ALL
),
taker AS (
    SELECT rank, tid, other_tid, sum(lost_ns) AS lost_ns
    FROM inside
    WHERE other_tid IS NOT NULL AND lost_ns > 0
    GROUP BY rank, tid, other_tid
    QUALIFY row_number() OVER (PARTITION BY rank, tid ORDER BY sum(lost_ns) DESC, other_tid) = 1
),
starved AS (
    SELECT i.rank, i.node, i.tid, count(*) AS n, sum(i.lost_ns) AS lost_ns,
        100 * sum(i.lost_ns) / any_value(r.wall_ns) AS share
    FROM inside AS i
    JOIN _rank_shares AS r ON i.rank = r.rank
    WHERE i.lost_ns > 0
    GROUP BY i.rank, i.node, i.tid
    QUALIFY row_number() OVER (PARTITION BY i.rank ORDER BY sum(i.lost_ns) DESC, i.tid) = 1
)
SELECT
    CASE WHEN s.share >= threshold('proxy_starved', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    s.rank, s.node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'proxy runnable but not running, slices of 0.1 ms and more, % of wall time' AS measure,
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
LEFT JOIN taker AS t ON s.rank = t.rank AND s.tid = t.tid
LEFT JOIN names AS n ON s.node = n.node AND t.other_tid = n.tid
WHERE s.share >= threshold('proxy_starved', 'share');
