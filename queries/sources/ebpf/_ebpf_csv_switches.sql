-- _ebpf_csv_switches: wake-ups and context switches: WK, SI, SO, and libbpf's SW, which is both halves at once.
--
-- Inputs: _ebpf_fields, the number of lines before this block in the variable ebpf_line
-- Output: columns of switches_in
-- Assumes: sched_switch prints 0x10 or 0x20 for a thread that exits, and the task's own state is 0x80 then. Above the
-- low 8 bits are TASK_REPORT_MAX (preempted) and modifiers: without any of the low bits a thread is still runnable.
CREATE OR REPLACE TEMP VIEW _ebpf_csv_switches AS
WITH switches AS (
    SELECT
        CASE kind WHEN 'WK' THEN 'wake' WHEN 'SI' THEN 'in' ELSE 'out' END AS kind,
        v1 AS at_ns,
        rowid AS line,
        CASE WHEN n = 12 THEN v5 ELSE v2 END AS tid,
        CASE WHEN kind = 'SW' THEN v2 END AS pid,
        CASE WHEN kind IN ('SI', 'SO') THEN v3 WHEN kind = 'SW' THEN v4 END AS cpu,
        CASE WHEN kind = 'WK' AND n = 12 THEN v3 WHEN kind = 'WK' OR (kind = 'SI' AND n = 5) THEN v4 END AS other,
        CASE kind WHEN 'SO' THEN v4 WHEN 'SW' THEN v8 END AS state,
        kind = 'SW' AND v9 <> 0 AS preempted
    FROM _ebpf_fields
    WHERE good AND kind IN ('WK', 'SI', 'SO', 'SW')
    UNION ALL
    SELECT 'in', v1, rowid, v7, NULL, v4, v5, NULL, false
    FROM _ebpf_fields
    WHERE good AND kind = 'SW'
)

SELECT
    kind,
    at_ns,
    line + getvariable('ebpf_line') AS line,
    tid,
    pid,
    NULL::VARCHAR AS name,
    cpu,
    other,
    CASE
        WHEN kind <> 'out' THEN NULL
        WHEN state & 176 <> 0 THEN 'dead'
        WHEN preempted OR state & 255 = 0 THEN 'runnable'
        ELSE 'blocked'
    END AS class,
    true AS fresh
FROM switches;
