-- _lost_idle: idle times of the GPU that losses of its events touch, cut where a loss starts and ends.
--
-- Inputs: _gpu_periods, losses, _step_order
-- Output:
--   idle_ns     BIGINT   the idle time, by its start
--   start_ns    BIGINT   start of the part
--   end_ns      BIGINT   end of the part
--   launch_ns   BIGINT   start of the launch call of the next operation (_gpu_periods)
--   launch_tid  BIGINT   thread of that launch (_gpu_periods)
--   lost        BOOLEAN  inside a loss; a loss without times covers all steps
CREATE OR REPLACE TEMP TABLE _lost_idle AS
WITH lost AS (
    -- Disjoint: each loss counts from where the ones before it end.
    SELECT greatest(start_ns, coalesce(max(end_ns) OVER (
        ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), start_ns)) AS start_ns, end_ns
    FROM (
        SELECT coalesce(l.start_ns, s.start_ns) AS start_ns, coalesce(l.end_ns, s.end_ns) AS end_ns
        FROM losses AS l
        CROSS JOIN (SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM _step_order) AS s
        WHERE l.source = 'nsys'
    )
),
touched AS (
    SELECT
        p.idle_ns,
        p.start_ns AS until_ns,
        greatest(l.start_ns, p.idle_ns) AS lost_ns,
        least(l.end_ns, p.start_ns) AS found_ns,
        p.launch_ns,
        p.launch_tid
    FROM _gpu_periods AS p
    JOIN lost AS l ON l.start_ns < p.start_ns AND l.end_ns > p.idle_ns
    WHERE p.start_ns > p.idle_ns AND l.end_ns > l.start_ns
),
part AS (
    SELECT idle_ns, lost_ns AS start_ns, found_ns AS end_ns, launch_ns, launch_tid, true AS lost FROM touched
    UNION ALL
    SELECT
        idle_ns,
        found_ns,
        coalesce(lead(lost_ns) OVER (PARTITION BY idle_ns ORDER BY lost_ns), until_ns),
        launch_ns,
        launch_tid,
        false
    FROM touched
    UNION ALL
    SELECT idle_ns, idle_ns, min(lost_ns), any_value(launch_ns), any_value(launch_tid), false
    FROM touched
    GROUP BY idle_ns
)
FROM part WHERE end_ns > start_ns;
