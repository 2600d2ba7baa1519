-- _gpu_periods: busy periods of the GPU (one operation or several that overlap) and the idle time before each.
--
-- Inputs: gpu_ops, _step_order
-- Output:
--   idle_ns     BIGINT    the GPU is idle from here to start_ns
--   start_ns    BIGINT    an operation starts
--   end_ns      BIGINT    the GPU is idle again, or the next operation follows without a break; NULL in the last row,
--                         which stands for the end of the steps and has no operation
--   kinds       UTINYINT  what is resident all the time: 1 compute, 2 communication, 4 copy or memset; 0: it changes
--   launch_ns   BIGINT    start of the launch call of the operation that starts; NULL in the last row;
--                         9223372036854775807: its launch is not in the capture
--   launch_tid  BIGINT    thread of that launch; -1: unknown
-- Assumes: of operations that start at once the one that was launched first counts. An empty OVER () and frames
--   without ORDER BY stream over the sorted rows; a plan test and the oracle tests hold DuckDB to that. gpu_ops lies
--   in order of start, which makes its sort cheap. An operation whose end is before its start is left out.
CREATE OR REPLACE TEMP TABLE _gpu_periods AS
WITH span AS (
    SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM _step_order
),
operation AS (
    SELECT
        start_ns,
        end_ns,
        CASE op_class WHEN 'compute' THEN 1::UTINYINT WHEN 'comm' THEN 2::UTINYINT ELSE 4::UTINYINT END AS kinds,
        coalesce(launch_start_ns, 9223372036854775807) AS launch_ns,
        coalesce(launch_tid, -1) AS launch_tid
    FROM gpu_ops
    WHERE end_ns >= start_ns
),
with_end AS (
    FROM operation
    UNION ALL
    SELECT
        greatest(s.end_ns, o.end_ns) AS start_ns,
        greatest(s.end_ns, o.end_ns) AS end_ns,
        0::UTINYINT AS kinds,
        NULL AS launch_ns,
        NULL AS launch_tid
    FROM span AS s
    CROSS JOIN (SELECT max(end_ns) AS end_ns FROM gpu_ops WHERE end_ns >= start_ns) AS o
),
reached AS (
    SELECT
        *,
        max(end_ns) OVER (ROWS UNBOUNDED PRECEDING) AS reach_ns,
        lag(kinds) OVER () AS kinds_before
    FROM (FROM with_end ORDER BY start_ns, launch_ns, launch_tid)
),
ahead AS (
    SELECT *, lag(reach_ns) OVER () AS before_ns FROM reached
),
counted AS (
    SELECT
        start_ns,
        kinds,
        launch_ns,
        launch_tid,
        before_ns,
        count(CASE WHEN start_ns < before_ns AND kinds <> kinds_before THEN 1 END) OVER (
            ROWS UNBOUNDED PRECEDING
        ) AS changes
    FROM ahead
),
period AS (
    SELECT *, lead(before_ns) OVER () AS end_ns, lead(changes) OVER () AS changes_by_end
    FROM counted
    WHERE before_ns IS NULL OR start_ns >= before_ns
)
SELECT
    coalesce(p.before_ns, least(s.start_ns, p.start_ns)) AS idle_ns,
    p.start_ns,
    p.end_ns,
    CASE WHEN p.changes_by_end > p.changes THEN 0::UTINYINT ELSE p.kinds END AS kinds,
    p.launch_ns,
    p.launch_tid
FROM period AS p
CROSS JOIN span AS s;
