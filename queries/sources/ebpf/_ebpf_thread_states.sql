-- _ebpf_thread_states: rows of thread_states whose end lies in this block.
--
-- Inputs: switches_sorted, _ebpf_threads, ebpf_block, ebpf_capture
-- Output: the columns of thread_states without node
-- Assumes: switches_sorted holds records up to the watermark, in the order (tid, at_ns, line); so windows need no
-- partition and run as they stream, with the thread compared instead. Running lasts from a switch in to the next
-- switch out. After a switch out a thread is runnable if it was preempted or yielded (still TASK_RUNNING) and blocked
-- otherwise, until the wake-up, from which on it is runnable until its next switch in. The waker on another core may
-- record its wake-up just before the sleeper's switch out: then the thread never was blocked. Two switches in a row
-- that can't follow each other mean that one was lost: nothing is claimed between them. After its exit a thread has
-- no state. Halves of switches of threads that are not of interest say nothing.
CREATE OR REPLACE TEMP VIEW _ebpf_thread_states AS
WITH ordered AS (
    SELECT
        *,
        last_value(CASE WHEN kind <> 'wake' THEN kind END IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS last_kind,
        last_value(CASE WHEN kind <> 'wake' THEN tid END IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS last_tid
    FROM switches_sorted
),

-- A wake-up of a thread that has not left its core yet is no edge.
wakes AS (
    SELECT *, kind = 'wake' AND coalesce(last_kind = 'in' AND last_tid = tid, false) AS overtakes FROM ordered
),

marked AS (
    SELECT *, coalesce(lag(overtakes) OVER () AND lag(tid) OVER () = tid, false) AS woken FROM wakes
),

edges AS (
    SELECT *, kind = 'out' AND class = 'blocked' AND NOT woken AS blocks FROM marked WHERE NOT overtakes
),

pairs AS (
    SELECT
        *,
        coalesce(lead(tid) OVER () = tid, false) AS has_next,
        lead(kind) OVER () AS next_kind,
        lead(at_ns) OVER () AS next_ns,
        lead(fresh) OVER () AS next_fresh,
        lead(other) OVER () AS next_other
    FROM edges
),

slices AS (
    SELECT
        p.* EXCLUDE (next_kind),
        CASE WHEN p.has_next THEN p.next_kind WHEN b.final THEN 'end' END AS next_kind,
        CASE WHEN p.has_next THEN p.next_ns WHEN b.final THEN b.last_ns END AS end_ns
    FROM pairs AS p
    CROSS JOIN ebpf_block AS b
    WHERE NOT p.has_next OR p.next_fresh
),

states AS (
    SELECT
        *,
        CASE
            WHEN class = 'dead' THEN NULL
            WHEN kind = 'in' AND next_kind IN ('out', 'end') THEN 'running'
            WHEN kind <> 'in' AND next_kind IN ('in', 'wake', 'end')
                THEN CASE WHEN blocks THEN 'blocked' ELSE 'runnable' END
        END AS state
    FROM slices
)

SELECT
    t.pid,
    s.tid,
    s.name,
    CASE WHEN s.state = 'running' THEN s.cpu END AS cpu,
    s.at_ns AS start_ns,
    s.end_ns,
    s.state,
    CASE
        WHEN s.state = 'runnable' AND s.next_kind = 'in' THEN s.next_other
        WHEN s.state = 'blocked' AND s.next_kind = 'wake' THEN s.next_other
    END AS other_tid
FROM states AS s
CROSS JOIN ebpf_capture AS c
LEFT JOIN _ebpf_threads AS t ON s.tid = t.tid
WHERE s.state IS NOT NULL AND s.end_ns > s.at_ns AND s.tid <> 0 AND (c.all_threads OR t.posts);
