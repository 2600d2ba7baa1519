-- find_host_stall: single long gaps in which the host launched nothing.
--
-- Inputs: _idle_gaps, _rank_shares, nvtx, gpu_ops, os_calls, thread_states, ranks, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: a range named gc, gc.collect, GC generation 2, Python GC or garbage collection is one of Python's collector,
--          which stops all threads of its process. A launching thread that is runnable was preempted, or woke up without
--          a core to run on.
CREATE OR REPLACE TEMP TABLE find_host_stall AS
WITH long AS (
    SELECT g.*, r.wall_ns
    FROM _idle_gaps AS g
    JOIN _rank_shares AS r ON g.rank = r.rank
    WHERE g.category IN ('host_launch', 'host_other') AND g.gap_ns >= threshold('host_stall', 'gap_ns')
),
collected AS (
    SELECT l.rank, sum(least(l.start_ns + l.gap_ns, n.end_ns) - greatest(l.start_ns, n.start_ns)) AS gc_ns
    FROM long AS l
    JOIN nvtx AS n ON l.rank = n.rank AND n.start_ns < l.start_ns + l.gap_ns AND n.end_ns > l.start_ns
    WHERE n.kind IN ('push_pop', 'start_end')
        AND regexp_matches(n.text, 'garbage|(^|[^a-z])gc([.: _]*(collect|gen)|[: ]*[0-9]?$)', 'i')
    GROUP BY l.rank
),
launcher AS (
    SELECT DISTINCT o.rank, o.launch_tid AS tid FROM gpu_ops AS o SEMI JOIN long AS l ON o.rank = l.rank
),
preempted AS (
    SELECT l.rank, sum(least(l.start_ns + l.gap_ns, t.end_ns) - greatest(l.start_ns, t.start_ns)) AS runnable_ns
    FROM thread_states AS t
    JOIN ranks AS r ON t.node = r.node AND (t.pid IS NULL OR t.pid = r.pid)
    JOIN launcher AS w ON r.rank = w.rank AND t.tid = w.tid
    JOIN long AS l ON r.rank = l.rank AND t.start_ns < l.start_ns + l.gap_ns AND t.end_ns > l.start_ns
    WHERE t.state = 'runnable'
    GROUP BY l.rank
),
-- What is traced of a rank: its OS calls, or the states of its process's threads.
seen AS (
    SELECT DISTINCT rank FROM os_calls WHERE rank IS NOT NULL
    UNION
    SELECT r.rank FROM ranks AS r SEMI JOIN thread_states AS t ON r.node = t.node AND r.pid = t.pid
),
stalled AS (
    SELECT l.rank, count(*) AS n, count(DISTINCT l.step) AS steps, sum(l.gap_ns) AS gap_ns, max(l.gap_ns) AS longest_ns,
        arg_max(l.step, (l.gap_ns, -l.step)) AS step, arg_max(l.category, (l.gap_ns, -l.step)) AS category,
        100 * sum(l.gap_ns) / any_value(l.wall_ns) AS share, l.rank IN (SELECT rank FROM seen) AS traced,
        least(coalesce(any_value(c.gc_ns), 0), sum(l.gap_ns)) AS gc_ns,
        least(coalesce(any_value(p.runnable_ns), 0), sum(l.gap_ns)) AS runnable_ns
    FROM long AS l
    LEFT JOIN collected AS c ON l.rank = c.rank
    LEFT JOIN preempted AS p ON l.rank = p.rank
    GROUP BY l.rank
    HAVING share >= threshold('host_stall', 'share')
)
SELECT
    CASE WHEN max(share) >= threshold('host_stall', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    arg_max(rank, (share, -rank)) AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, arg_max(step, (share, -rank)) AS step,
    'GPU idle in gaps of 1 ms and more, % of the rank''s wall time' AS measure,
    max(share) AS value,
    threshold('host_stall', 'share') AS threshold,
    'measured_nsys' AS evidence,
    printf('The host stalls: rank %d launches nothing for 1 ms or longer %d times in %d ' || step_word() || 's, %.1f ms in all, longest %.1f ms in ' || step_word() || ' %d%s%s%s.',
        arg_max(rank, (share, -rank)), arg_max(n, (share, -rank)), arg_max(steps, (share, -rank)), arg_max(gap_ns, (share, -rank)) / 1e6,
        arg_max(longest_ns, (share, -rank)) / 1e6, arg_max(step, (share, -rank)),
        CASE WHEN arg_max(category, (share, -rank)) = 'host_other' THEN ' (blocked in an OS call or off-CPU)' ELSE '' END,
        CASE WHEN arg_max(gc_ns, (share, -rank)) > 0
            THEN printf('; %.1f ms of it in garbage collection', arg_max(gc_ns, (share, -rank)) / 1e6) ELSE '' END,
        CASE WHEN arg_max(runnable_ns, (share, -rank)) > 0
            THEN printf('; %.1f ms of it runnable without a core', arg_max(runnable_ns, (share, -rank)) / 1e6) ELSE '' END) AS text,
    'excluded: data loading (host_data), synchronising calls (host_sync), slow launches (gaps under 1 ms); '
        || CASE WHEN arg_max(traced, (share, -rank)) THEN 'OS calls or thread states of this rank were traced'
            ELSE 'not excluded: what the thread did meanwhile (no OS calls, no thread states)' END AS confounders,
    CASE WHEN arg_max(2 * gc_ns >= gap_ns, (share, -rank))
            THEN 'collect at a fixed step, on all ranks at once, and call gc.freeze() after the start'
        WHEN arg_max(2 * runnable_ns >= gap_ns, (share, -rank))
            THEN 'give the launching thread a core that no data worker, proxy or other job runs on'
        WHEN arg_max(traced, (share, -rank)) THEN 'the OS calls during these gaps name what it waited in'
        ELSE 'trace with --trace=cuda,nvtx,osrt and --cpuctxsw=process-tree to see what the thread waited for' END AS next
FROM stalled
HAVING count(*) > 0;
