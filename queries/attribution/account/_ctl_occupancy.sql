-- _ctl_occupancy: when the CPU proxy is busy with, or holds up, messages of an operation, by leaf of ctl_cpu.
--
-- Inputs: _carried_messages, _op_windows, thread_states, comm_phases
-- Output:
--   op_id       BIGINT   operation (_operations)
--   leaf        VARCHAR  ctl_schedule, ctl_loop, ctl_post, ctl_wqe, ctl_doorbell; ctl_cpu: schedule or loop, no
--                        scheduler events to tell
--   start_ns    BIGINT   start, ns
--   end_ns      BIGINT   end, exclusive, ns
-- Assumes: one rank; slices of a thread are disjoint, and so are gaps between its posts and windows of its operations.
--          So one pass over the boundaries of all of them, with the last value of each carried forward, finds the
--          overlaps: no range join. Ends come before starts of the same instant.
CREATE OR REPLACE TEMP TABLE _ctl_occupancy AS
WITH messages AS (
    SELECT
        m.tid,
        m.op_id,
        m.enter_ns,
        m.exit_ns,
        m.doorbell_ns,
        m.complete_ns,
        m.complete_before_ns,
        m.service_end_ns,
        m.rtt0_ns,
        m.waited_for AND m.outstanding_at_post = 0 AS waited,
        w.start_ns AS op_start_ns,
        w.end_ns AS op_end_ns,
        lag(m.exit_ns) OVER thread AS thread_exit_ns,
        lag(m.op_id) OVER thread AS thread_op_id
    FROM _carried_messages AS m
    JOIN _op_windows AS w ON m.op_id = w.op_id
    WINDOW thread AS (PARTITION BY m.tid ORDER BY m.enter_ns, m.exit_ns, m.qp, m.wr_id)
),
-- Between two posts of one operation; a stop-and-wait sender with nothing in flight waits for the wire until it sees
-- the completion.
gaps AS (
    SELECT
        tid,
        op_id,
        CASE WHEN waited
            THEN greatest(thread_exit_ns, coalesce(complete_before_ns, thread_exit_ns))
            ELSE thread_exit_ns
        END AS start_ns,
        enter_ns AS end_ns
    FROM messages
    WHERE thread_op_id = op_id
),
-- It has messages left to post, or a completion is due that it has not seen.
wants AS (
    SELECT tid, op_id, any_value(op_start_ns) AS start_ns, max(enter_ns) AS end_ns FROM messages GROUP BY ALL
    UNION ALL
    SELECT
        tid,
        op_id,
        greatest(service_end_ns + rtt0_ns, op_start_ns) AS start_ns,
        least(complete_ns, op_end_ns) AS end_ns
    FROM messages
    WHERE service_end_ns + rtt0_ns < complete_ns
),
wants_marked AS (
    SELECT
        *,
        start_ns > coalesce(
            max(end_ns) OVER (
                PARTITION BY tid, op_id
                ORDER BY start_ns, end_ns
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            start_ns - 1
        ) AS begins
    FROM wants
    WHERE end_ns > start_ns
),
wanted AS (
    SELECT tid, op_id, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM (
        SELECT
            *,
            sum(begins::BIGINT) OVER (
                PARTITION BY tid, op_id ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING
            ) AS island
        FROM wants_marked
    )
    GROUP BY tid, op_id, island
),
threads AS (
    SELECT DISTINCT tid FROM messages
),
-- The profiler knows when the proxy only polls a flag or a credit.
polls_marked AS (
    SELECT
        start_ns,
        end_ns,
        start_ns > coalesce(
            max(end_ns) OVER (ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            start_ns - 1
        ) AS begins
    FROM comm_phases
    WHERE phase IN ('SendGPUWait', 'SendPeerWait') AND end_ns > start_ns
),
polls AS (
    SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM (
        SELECT *, sum(begins::BIGINT) OVER (ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING) AS island
        FROM polls_marked
    )
    GROUP BY island
),
slices AS (
    SELECT
        s.tid,
        s.start_ns,
        s.end_ns,
        CASE s.state WHEN 'runnable' THEN 1 WHEN 'running' THEN 2 ELSE 3 END::TINYINT AS state
    FROM thread_states AS s
    SEMI JOIN threads AS t ON s.tid IS NOT DISTINCT FROM t.tid
    WHERE s.end_ns > s.start_ns
),
boundaries AS (
    SELECT tid, start_ns AS at_ns, true AS opens, op_id AS gap, NULL::BIGINT AS want, NULL::TINYINT AS state, NULL::BOOLEAN AS poll
    FROM gaps WHERE end_ns > start_ns
    UNION ALL
    SELECT tid, end_ns, false, -1, NULL, NULL, NULL FROM gaps WHERE end_ns > start_ns
    UNION ALL
    SELECT tid, start_ns, true, NULL, op_id, NULL, NULL FROM wanted
    UNION ALL
    SELECT tid, end_ns, false, NULL, -1, NULL, NULL FROM wanted
    UNION ALL
    SELECT tid, start_ns, true, NULL, NULL, state, NULL FROM slices
    UNION ALL
    SELECT tid, end_ns, false, NULL, NULL, 0, NULL FROM slices
    UNION ALL
    SELECT t.tid, p.start_ns, true, NULL, NULL, NULL, true FROM polls AS p CROSS JOIN threads AS t
    UNION ALL
    SELECT t.tid, p.end_ns, false, NULL, NULL, NULL, false FROM polls AS p CROSS JOIN threads AS t
    UNION ALL
    -- Nothing is carried forward from one thread into the next.
    SELECT tid, -9223372036854775807, false, -1, -1, 0, false FROM threads
),
pieces AS (
    SELECT
        at_ns AS start_ns,
        CASE WHEN lead(tid) OVER () IS NOT DISTINCT FROM tid THEN lead(at_ns) OVER () END AS end_ns,
        last_value(gap IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS gap,
        last_value(want IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS want,
        last_value(state IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS state,
        last_value(poll IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS poll
    FROM (FROM boundaries ORDER BY tid, at_ns, opens)
),
leaves AS (
    SELECT gap AS op_id, CASE state WHEN 2 THEN 'ctl_loop' ELSE 'ctl_cpu' END AS leaf, start_ns, end_ns
    FROM pieces
    WHERE gap >= 0 AND state IN (0, 2) AND NOT poll AND end_ns > start_ns
    UNION ALL
    SELECT want AS op_id, 'ctl_schedule' AS leaf, start_ns, end_ns
    FROM pieces
    WHERE want >= 0 AND state = 1 AND end_ns > start_ns
    UNION ALL
    SELECT op_id, 'ctl_post' AS leaf, enter_ns AS start_ns, exit_ns AS end_ns FROM messages WHERE doorbell_ns IS NULL
    UNION ALL
    SELECT op_id, 'ctl_wqe' AS leaf, enter_ns AS start_ns, doorbell_ns AS end_ns FROM messages WHERE doorbell_ns IS NOT NULL
    UNION ALL
    SELECT op_id, 'ctl_doorbell' AS leaf, doorbell_ns AS start_ns, exit_ns AS end_ns FROM messages WHERE doorbell_ns IS NOT NULL
)
SELECT
    l.op_id,
    l.leaf,
    greatest(l.start_ns, w.start_ns) AS start_ns,
    least(l.end_ns, w.end_ns) AS end_ns
FROM leaves AS l
JOIN _op_windows AS w ON l.op_id = w.op_id
WHERE least(l.end_ns, w.end_ns) > greatest(l.start_ns, w.start_ns)
ORDER BY ALL;
