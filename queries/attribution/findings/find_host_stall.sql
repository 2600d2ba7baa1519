-- find_host_stall: single long gaps in which the host launched nothing.
--
-- Inputs: _idle_gaps, _rank_shares, os_calls, thread_states, ranks, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_host_stall AS
WITH long AS (
    SELECT g.*, r.wall_ns
    FROM _idle_gaps AS g
    JOIN _rank_shares AS r ON g.rank = r.rank
    WHERE g.category IN ('host_launch', 'host_other') AND g.gap_ns >= threshold('host_stall', 'gap_ns')
),
-- What is traced of a rank: its OS calls, or the states of its process's threads.
seen AS (
    SELECT DISTINCT rank FROM os_calls WHERE rank IS NOT NULL
    UNION
    SELECT r.rank FROM ranks AS r SEMI JOIN thread_states AS t ON r.node = t.node AND r.pid = t.pid
),
stalled AS (
    SELECT rank, count(*) AS n, count(DISTINCT step) AS steps, sum(gap_ns) AS gap_ns, max(gap_ns) AS longest_ns,
        arg_max(step, (gap_ns, -step)) AS step, arg_max(category, (gap_ns, -step)) AS category, 100 * sum(gap_ns) / any_value(wall_ns) AS share,
        rank IN (SELECT rank FROM seen) AS traced
    FROM long
    GROUP BY rank
    HAVING share >= threshold('host_stall', 'share')
)
SELECT
    CASE WHEN max(share) >= threshold('host_stall', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    arg_max(rank, (share, -rank)) AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, arg_max(step, (share, -rank)) AS step,
    'GPU idle in gaps of 1 ms and more, % of the rank''s wall time' AS measure,
    max(share) AS value,
    threshold('host_stall', 'share') AS threshold,
    'measured_nsys' AS evidence,
    printf('The host stalls: rank %d launches nothing for 1 ms or longer %d times in %d ' || step_word() || 's, %.1f ms in all, longest %.1f ms in ' || step_word() || ' %d%s.',
        arg_max(rank, (share, -rank)), arg_max(n, (share, -rank)), arg_max(steps, (share, -rank)), arg_max(gap_ns, (share, -rank)) / 1e6,
        arg_max(longest_ns, (share, -rank)) / 1e6, arg_max(step, (share, -rank)),
        CASE WHEN arg_max(category, (share, -rank)) = 'host_other' THEN ' (blocked in an OS call or off-CPU)' ELSE '' END) AS text,
    'excluded: data loading (host_data), synchronising calls (host_sync), slow launches (gaps under 1 ms); '
        || CASE WHEN arg_max(traced, (share, -rank)) THEN 'OS calls or thread states of this rank were traced'
            ELSE 'not excluded: what the thread did meanwhile (no OS calls, no thread states)' END AS confounders,
    CASE WHEN arg_max(traced, (share, -rank)) THEN 'the OS calls during these gaps name what it waited in'
        ELSE 'trace with --trace=cuda,nvtx,osrt and --cpuctxsw=process-tree to see what the thread waited for' END AS next
FROM stalled
HAVING count(*) > 0;
