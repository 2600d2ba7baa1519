-- _bounds: how far a step's figures may be off by what is known of each category, and what of that moves to those after it.
--
-- Inputs: _wait_windows, _participants, _operations, _local_operations, clock_pairs, segments, _carried_messages, _links,
--   _shares, _ctl_shares, _step_order, gpu_ops, captures, fits, thread_states, os_calls, categories, this_rank
-- Output:
--   ordinal    BIGINT   the step, by place in time
--   category   VARCHAR  category
--   less_ns    BIGINT   the true figure may be smaller by this, ns
--   more_ns    BIGINT   it may be larger by this, ns
--   given_ns   BIGINT   of less_ns: goes to whichever category comes next in order, ns
--   taken_ns   BIGINT   of more_ns: comes from whichever category comes next in order, ns
-- Assumes: errors of one category add up: they may all point one way.
--   Waits: each end is known to the clock error of the pair. Where an operation has participants on other nodes, this rank
--   may have waited by that error at its start though it seems last, and by what lies within the error; without a bound
--   for the clocks, or where a participant has no capture, all the time. Whatever got those instants may lose them.
--   Posts: a duration is known to the probe's cost where that was calibrated, so as a part of the durations, else it is an
--   upper bound; the loop has the rest. Only where the two sides of the cost are known is the return known too, else
--   flights may have begun earlier. What probes cost in all is the thread's time between posts, and would not be there
--   without them. Leaves of ctl_cpu are shares by occupancy, so they err by the same part.
--   Transfer goes with 1/beta, and a fitted beta is known to its interval; base latency is n round trips, and a fitted one
--   is known to its interval; what run.toml gives is taken as it is. A time to fetch is a constant from elsewhere: it may
--   be nothing or twice as much. The rule of stop-and-wait speaks for nine in ten messages of a chain.
--   Host: a thread whose switches nobody recorded runs between launches, or not; without OS calls nobody saw it read.
CREATE OR REPLACE TEMP TABLE _bounds AS
WITH cell AS (
    SELECT ordinal, category, sum(attributed_ns) AS got_ns, sum(inclusive_ns) AS held_ns
    FROM (FROM _shares UNION ALL BY NAME FROM _ctl_shares)
    GROUP BY ordinal, category
),
clocks AS (
    SELECT max(error_ns) AS error_ns FROM clock_pairs WHERE node = (SELECT node FROM this_rank)
),
observed AS (
    SELECT count(*) > 0 AS messages FROM _carried_messages
),
-- Operations that need someone on another node, or someone who has no capture.
far_operation AS (
    SELECT
        o.op_id,
        CASE p.basis WHEN 'peer' THEN 'wait_pipeline' ELSE 'wait_straggler' END AS category,
        o.start_ns,
        least(o.end_ns, o.start_ns + coalesce(c.error_ns, o.end_ns - o.start_ns)) AS end_ns
    FROM _operations AS o
    JOIN (SELECT op_id, min(basis) AS basis FROM _participants GROUP BY op_id) AS p USING (op_id)
    ANTI JOIN _local_operations AS l ON o.op_id = l.op_id
    CROSS JOIN clocks AS c
),
-- The instants that a wait on an arrival may have had: behind the wait that is known, else from the operation's start.
doubtful AS (
    SELECT
        coalesce(k.category, f.category) AS category,
        coalesce(k.end_ns, f.start_ns) AS start_ns,
        greatest(coalesce(k.end_ns, f.start_ns) + f.end_ns - f.start_ns, coalesce(h.end_ns, f.end_ns)) AS end_ns
    FROM far_operation AS f
    LEFT JOIN (
        SELECT op_id, 'wait_' || kind AS category, max(end_ns) AS end_ns
        FROM _wait_windows
        WHERE NOT within_clock_error AND kind IN ('straggler', 'pipeline')
        GROUP BY op_id, kind
    ) AS k USING (op_id)
    LEFT JOIN (
        SELECT op_id, max(end_ns + clock_error_ns) AS end_ns
        FROM _wait_windows
        WHERE within_clock_error AND kind IN ('straggler', 'pipeline')
        GROUP BY op_id
    ) AS h USING (op_id)
),
numbered AS (
    SELECT start_ns, end_ns, category, row_number() OVER (ORDER BY start_ns) AS n FROM segments WHERE EXISTS (FROM doubtful)
),
reach AS (
    SELECT d.*, coalesce(a.n, 1) AS first_n, b.n AS last_n
    FROM doubtful AS d
    ASOF LEFT JOIN numbered AS a ON d.start_ns >= a.start_ns
    ASOF JOIN numbered AS b ON d.end_ns > b.start_ns
),
overlapped AS (
    SELECT
        o.ordinal,
        d.category,
        s.category AS loser,
        sum(least(d.end_ns, s.end_ns) - greatest(d.start_ns, s.start_ns)) AS time_ns
    FROM (SELECT *, unnest(range(first_n, last_n + 1)) AS n FROM reach) AS d
    JOIN numbered AS s USING (n)
    JOIN categories AS c ON c.category = s.category
    ASOF JOIN _step_order AS o ON s.start_ns >= o.start_ns
    WHERE s.end_ns > d.start_ns AND (c.comm OR c.category = 'trace_gap') AND s.category NOT IN ('wait_straggler', 'wait_pipeline')
    GROUP BY o.ordinal, d.category, s.category
),
known_wait AS (
    SELECT
        op_id,
        'wait_' || kind AS category,
        min(start_ns) AS start_ns,
        CASE WHEN bool_or(NOT within_clock_error) THEN max(clock_error_ns) FILTER (NOT within_clock_error) ELSE 0 END AS less_ns,
        CASE WHEN kind = 'sender' THEN
            max(clock_error_ns) + coalesce(max(end_ns) FILTER (within_clock_error) - min(start_ns) FILTER (within_clock_error), 0)
        END AS more_ns
    FROM _wait_windows
    WHERE kind <> 'credit'
    GROUP BY op_id, kind
    UNION ALL
    SELECT f.op_id, 'wait_sender', f.start_ns, 0, f.end_ns - f.start_ns
    FROM far_operation AS f
    CROSS JOIN observed AS m
    WHERE m.messages AND f.op_id NOT IN (SELECT op_id FROM _wait_windows WHERE kind = 'sender')
),
probe AS (
    SELECT
        max(probe_cost_ns) AS cost_ns,
        CASE WHEN bool_and(probe_call_ns IS NOT NULL) THEN max(probe_call_ns) END AS call_ns,
        CASE WHEN bool_and(probe_cost_ns IS NOT NULL) THEN max(probe_cost_ns) END AS calibrated_ns,
        bool_and(probe_exit_ns IS NOT NULL) AS split
    FROM captures
    WHERE kind IN ('ebpf_csv', 'perf_script') AND status <> 'unusable'
    HAVING count(*) > 0
),
posts AS (
    SELECT
        o.ordinal,
        count(*) AS n,
        count(DISTINCT m.op_id) AS operations,
        sum(m.exit_ns - m.enter_ns) AS inside_ns,
        count(*) FILTER (m.chain) AS chained,
        sum(m.fetch_ns) AS fetch_ns,
        coalesce(sum(m.rtt0_ns - l.rtt0_lo_ns) FILTER (m.chain), 0) AS chain_less_ns,
        coalesce(sum(l.rtt0_hi_ns - m.rtt0_ns) FILTER (m.chain), 0) AS chain_more_ns,
        coalesce(sum(m.rtt0_ns - l.rtt0_lo_ns) FILTER (NOT m.chain), 0) AS less_ns,
        coalesce(sum(l.rtt0_hi_ns - m.rtt0_ns) FILTER (NOT m.chain), 0) AS more_ns
    FROM (FROM _carried_messages WHERE op_id IS NOT NULL) AS m
    ASOF JOIN _step_order AS o ON m.enter_ns >= o.start_ns
    LEFT JOIN _links AS l ON m.node IS NOT DISTINCT FROM l.node AND m.nic IS NOT DISTINCT FROM l.nic
    GROUP BY o.ordinal
),
leaf AS (
    SELECT
        c.ordinal,
        c.category,
        CASE
            WHEN c.category IN ('ctl_loop', 'ctl_cpu') THEN 'loop' WHEN c.category = 'ctl_schedule' THEN 'schedule' ELSE 'post'
        END AS kind,
        c.got_ns,
        -- Of each leaf the part that the probes may account for.
        least(1, CASE
            WHEN c.category IN ('ctl_loop', 'ctl_cpu') THEN p.n * b.call_ns / nullif(c.held_ns, 0)
            WHEN c.category = 'ctl_schedule'
                THEN (p.operations * b.call_ns + CASE WHEN b.split THEN 0 ELSE p.n * b.calibrated_ns END)
                    / nullif(sum(c.held_ns) OVER (PARTITION BY c.ordinal), 0)
            ELSE p.n * b.calibrated_ns / nullif(p.inside_ns, 0)
        END) AS part,
        -- The probes' time at both ends of an operation's posts lies between no two of them.
        p.operations * b.call_ns AS ends_ns,
        b.split
    FROM cell AS c
    JOIN posts AS p USING (ordinal)
    CROSS JOIN probe AS b
    WHERE starts_with(c.category, 'ctl_') AND c.category <> 'ctl_fetch'
),
beta AS (
    SELECT
        max(1 - beta_bytes_per_s / beta_hi) AS less_part,
        max(beta_bytes_per_s / beta_lo - 1) AS more_part
    FROM fits
    WHERE beta_source = 'fit' AND beta_lo > 0 AND (node, nic) IN (SELECT DISTINCT (node, nic) FROM _carried_messages)
),
host AS (
    SELECT bool_and(t.tid IS NOT NULL) AS switches, any_value(c.seen) AS calls
    FROM (SELECT DISTINCT launch_tid AS tid FROM gpu_ops WHERE launch_tid IS NOT NULL) AS w
    CROSS JOIN (SELECT count(*) > 0 AS seen FROM os_calls) AS c
    LEFT JOIN (
        SELECT DISTINCT s.tid FROM thread_states AS s JOIN this_rank AS r ON s.pid IS NULL OR s.pid = r.pid
    ) AS t ON w.tid = t.tid
),
-- What a category can take from those after it.
after AS (
    SELECT o.ordinal, k.category, coalesce(sum(c.got_ns) FILTER (l.priority > k.priority), 0) AS got_ns
    FROM _step_order AS o
    CROSS JOIN categories AS k
    LEFT JOIN cell AS c USING (ordinal)
    LEFT JOIN categories AS l ON c.category = l.category AND (l.comm OR l.category = 'trace_gap') AND l.leaf_of IS NULL
    GROUP BY o.ordinal, k.category
),
found (ordinal, category, less_ns, more_ns, given_ns, taken_ns) AS (
    SELECT ordinal, category, 0, sum(time_ns), 0, 0 FROM overlapped GROUP BY ordinal, category
    UNION ALL
    SELECT v.ordinal, c.category, v.time_ns, 0, 0, 0
    FROM overlapped AS v
    JOIN categories AS c ON c.category = v.loser OR c.leaf_of = v.loser
    UNION ALL
    SELECT o.ordinal, w.category, w.less_ns, coalesce(w.more_ns, 0), w.less_ns, coalesce(w.more_ns, 0)
    FROM known_wait AS w
    ASOF JOIN _step_order AS o ON w.start_ns >= o.start_ns
    UNION ALL
    SELECT
        ordinal,
        category,
        coalesce(part, 1) * got_ns,
        CASE WHEN kind = 'loop' THEN
            coalesce(sum(coalesce(part, 1) * got_ns) FILTER (kind = 'post') OVER (PARTITION BY ordinal), 0)
            + coalesce(ends_ns, 0)
        ELSE coalesce(part, 0) * got_ns END,
        CASE WHEN kind <> 'post' OR split THEN 0 ELSE coalesce(part, 1) * got_ns END,
        CASE WHEN kind <> 'post' OR split THEN 0 ELSE coalesce(part, 0) * got_ns END
    FROM leaf
    UNION ALL
    SELECT c.ordinal, c.category, b.less_part * c.held_ns, b.more_part * c.held_ns, b.less_part * c.held_ns, b.more_part * c.held_ns
    FROM cell AS c
    CROSS JOIN beta AS b
    WHERE c.category = 'rdma_transfer'
    UNION ALL
    SELECT c.ordinal, c.category, c.got_ns, c.held_ns, c.got_ns, c.held_ns FROM cell AS c WHERE c.category = 'ctl_fetch'
    UNION ALL
    SELECT ordinal, 'blocking_rtt', chain_less_ns, chain_more_ns, chain_less_ns, chain_more_ns FROM posts WHERE chained > 0
    UNION ALL
    SELECT ordinal, 'net_latency', less_ns, more_ns, less_ns, more_ns FROM posts WHERE less_ns + more_ns > 0
    UNION ALL
    SELECT ordinal, unnest(['blocking_rtt', 'net_latency']), unnest([0.1 * got_ns, 0]), unnest([0, 0.1 * got_ns]), 0, 0
    FROM cell
    WHERE category = 'blocking_rtt'
    UNION ALL
    SELECT c.ordinal, c.category, c.got_ns, 0, 0, 0
    FROM cell AS c
    CROSS JOIN host AS h
    WHERE c.category = 'host_launch' AND NOT (h.switches AND h.calls) OR c.category = 'host_other' AND NOT h.calls
    UNION ALL
    -- By anything: what others of its group can't lose bounds it.
    SELECT s.ordinal, 'host_other', 0, s.end_ns - s.start_ns, 0, 0
    FROM host AS h
    CROSS JOIN _step_order AS s
    WHERE NOT (h.switches AND h.calls)
    UNION ALL
    SELECT s.ordinal, 'host_data', 0, s.end_ns - s.start_ns, 0, 0
    FROM host AS h
    CROSS JOIN _step_order AS s
    WHERE NOT h.calls
)
SELECT
    f.ordinal,
    f.category,
    ceil(f.less_ns)::BIGINT AS less_ns,
    ceil(f.more_ns - f.taken_ns + least(f.taken_ns, a.got_ns))::BIGINT AS more_ns,
    ceil(f.given_ns)::BIGINT AS given_ns,
    ceil(least(f.taken_ns, a.got_ns))::BIGINT AS taken_ns
FROM (
    SELECT
        ordinal,
        category,
        sum(less_ns) AS less_ns,
        sum(more_ns) AS more_ns,
        sum(given_ns) AS given_ns,
        sum(taken_ns) AS taken_ns
    FROM found
    GROUP BY ordinal, category
) AS f
JOIN after AS a USING (ordinal, category)
WHERE f.less_ns > 0 OR f.more_ns > 0;
