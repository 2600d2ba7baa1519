-- _ebpf_csv_switches: wake-ups and context switches: WK, SI, SO, and libbpf's SW, which is both halves at once.
--
-- Inputs: _ebpf_fields
-- Output: columns of switches_in; line counts those of _ebpf_fields
-- Assumes: WK has 6 fields, or 12 of libbpf; SI 5, or 4 without the thread before; SO 5; SW 12. sched_switch prints 0x10
-- or 0x20 for a thread that exits, and the task's own state is 0x80 then. Above the low 8 bits are TASK_REPORT_MAX
-- (preempted) and modifiers: without any of the low bits a thread is still runnable.
CREATE OR REPLACE TEMP VIEW _ebpf_csv_switches AS
WITH switches AS (
    SELECT
        CASE c0 WHEN 'WK' THEN 'wake' WHEN 'SI' THEN 'in' ELSE 'out' END AS kind,
        c1 AS at_ns,
        rowid AS line,
        CASE WHEN c11 IS NOT NULL THEN c5 ELSE c2 END AS tid,
        CASE WHEN c0 = 'SW' THEN c2 END AS pid,
        CASE WHEN c0 IN ('SI', 'SO') THEN c3 WHEN c0 = 'SW' THEN c4 END AS cpu,
        CASE WHEN c0 = 'WK' AND c11 IS NOT NULL THEN c3 WHEN c0 IN ('WK', 'SI') THEN c4 END AS other,
        CASE c0 WHEN 'SO' THEN c4 WHEN 'SW' THEN c8 END AS state,
        c0 = 'SW' AND c9 <> 0 AS preempted
    FROM _ebpf_fields
    WHERE
        c0 IN ('WK', 'SI', 'SO', 'SW')
        AND CASE c0
            WHEN 'WK' THEN (c5 IS NOT NULL AND c6 IS NULL) OR (c11 IS NOT NULL AND c12 IS NULL)
            WHEN 'SI' THEN c3 IS NOT NULL AND c5 IS NULL
            WHEN 'SO' THEN c4 IS NOT NULL AND c5 IS NULL
            ELSE c11 IS NOT NULL AND c12 IS NULL AND try_cast(c7 AS BIGINT) IS NOT NULL
        END
    UNION ALL
    SELECT 'in', c1, rowid, try_cast(c7 AS BIGINT), NULL, c4, c5, NULL, false
    FROM _ebpf_fields
    WHERE c0 = 'SW' AND c11 IS NOT NULL AND c12 IS NULL AND try_cast(c7 AS BIGINT) IS NOT NULL
)

SELECT
    kind,
    at_ns,
    line,
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
