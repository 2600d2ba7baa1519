-- _trace_switches: wake-ups and context switches of a trace, both halves of each.
--
-- Inputs: _trace_events
-- Output: columns of switches_in
-- Assumes: sched_switch is printed in two forms: `prev_comm=a prev_pid=1 ... ==> next_comm=b next_pid=2 ...` and
-- `a:1 [120] S ==> b:2 [120]`; sched_waking likewise. R and R+ are still runnable, X and Z have exited.
CREATE OR REPLACE TEMP VIEW _trace_switches AS
WITH switches AS (
    SELECT
        line, at_ns, cpu, pid, tid AS current_tid,
        CASE
            WHEN args LIKE 'prev_comm=%'
                THEN regexp_extract(
                    args,
                    '^prev_comm=(.*) prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> next_comm=(.*) next_pid=(\d+)',
                    ['prev_name', 'prev_tid', 'state', 'next_name', 'next_tid']
                )
            ELSE regexp_extract(
                args,
                '^(.*):(\d+) \[-?\d+\] (\S+) ==> (.*):(\d+) \[-?\d+\]',
                ['prev_name', 'prev_tid', 'state', 'next_name', 'next_tid']
            )
        END AS s
    FROM _trace_events
    WHERE event = 'sched_switch'
),

wakes AS (
    SELECT
        line, at_ns, tid AS current_tid,
        CASE
            WHEN args LIKE 'comm=%' THEN regexp_extract(args, '^comm=(.*) pid=(\d+) ', ['name', 'tid'])
            ELSE regexp_extract(args, '^(.*):(\d+) \[', ['name', 'tid'])
        END AS s
    FROM _trace_events
    WHERE event = 'sched_waking'
)

SELECT
    'out' AS kind, at_ns, line, try_cast(s.prev_tid AS BIGINT) AS tid, pid, s.prev_name AS name, cpu, NULL::BIGINT AS other,
    CASE WHEN s.state SIMILAR TO 'R\+?' THEN 'runnable' WHEN s.state SIMILAR TO '[XZ].*' THEN 'dead' ELSE 'blocked' END
        AS class,
    true AS fresh
FROM switches
WHERE s.prev_tid <> ''
UNION ALL
SELECT 'in', at_ns, line, try_cast(s.next_tid AS BIGINT), NULL, s.next_name, cpu, try_cast(s.prev_tid AS BIGINT), NULL, true
FROM switches
WHERE s.next_tid <> ''
UNION ALL
SELECT 'wake', at_ns, line, try_cast(s.tid AS BIGINT), NULL, s.name, NULL, current_tid, NULL, true
FROM wakes
WHERE s.tid <> ''
ORDER BY line;
