-- nsys_thread_state: rows of thread_states, from context switches.
--
-- Inputs: nsys_raw_sched, nsys_raw_sched_states, nsys_raw_thread_names, nsys_string
-- Output: the columns of thread_states
-- Assumes: a thread runs from the switch that puts it on a core to its next switch. Off its core, most exports don't
--   say whether it was preempted or blocked: then the state is NULL. What follows the last switch is not known.
CREATE OR REPLACE TEMP VIEW nsys_thread_state AS
WITH names AS (
    SELECT t.globalTid, arg_max(s.value, (t.priority, s.value)) AS name
    FROM nsys_raw_thread_names AS t
    JOIN nsys_string AS s ON s.id = t.nameId
    GROUP BY t.globalTid
),
slices AS (
    SELECT
        globalTid,
        cpu,
        isSchedIn,
        threadState,
        start,
        lead(start) OVER (PARTITION BY globalTid ORDER BY start, isSchedIn, cpu) AS "end"
    FROM nsys_raw_sched
    WHERE globalTid IS NOT NULL
)
SELECT
    getvariable('nsys_node')::VARCHAR AS node,
    nsys_pid(c.globalTid) AS pid,
    nsys_tid(c.globalTid) AS tid,
    n.name,
    CASE WHEN c.isSchedIn <> 0 THEN c.cpu END AS cpu,
    nsys_at(c.start) AS start_ns,
    nsys_at(c."end") AS end_ns,
    CASE
        WHEN c.isSchedIn <> 0 THEN 'running'
        WHEN e.label IN ('Interruptible', 'Uninterruptible', 'Stopped', 'Waiting', 'OS runtime') THEN 'blocked'
        WHEN e.label IN ('Running', 'Unscheduled') THEN 'runnable'
    END AS state,
    NULL::BIGINT AS other_tid
FROM slices AS c
LEFT JOIN nsys_raw_sched_states AS e ON e.id = c.threadState
LEFT JOIN names AS n ON n.globalTid = c.globalTid
WHERE c."end" > c.start AND NOT (c.isSchedIn = 0 AND coalesce(e.label, '') = 'Terminated');
