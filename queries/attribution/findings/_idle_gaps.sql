-- _idle_gaps: stretches of host idle time inside counted steps, adjoining pieces joined.
--
-- Inputs: segments, _counted_steps
-- Output:
--   rank         BIGINT   rank
--   step         BIGINT   step
--   category     VARCHAR  host_launch, host_other or host_data: what holds most of the stretch
--   start_ns     BIGINT   start, ns
--   gap_ns       BIGINT   length, ns
CREATE OR REPLACE TEMP TABLE _idle_gaps AS
WITH pieces AS (
    SELECT s.rank, s.step, s.category, s.start_ns, s.end_ns,
        lag(s.end_ns) OVER (PARTITION BY s.rank, s.step ORDER BY s.start_ns, s.end_ns) IS DISTINCT FROM s.start_ns AS begins
    FROM segments AS s
    JOIN _counted_steps AS c ON s.rank = c.rank AND s.step = c.step
    WHERE s.category IN ('host_launch', 'host_other', 'host_data')
),
numbered AS (
    SELECT *, count(*) FILTER (begins) OVER (PARTITION BY rank, step ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING) AS gap
    FROM pieces
)
SELECT rank, step, arg_max(category, (end_ns - start_ns, -start_ns)) AS category, min(start_ns) AS start_ns,
    sum(end_ns - start_ns)::BIGINT AS gap_ns
FROM numbered
GROUP BY rank, step, gap
ORDER BY rank, step, start_ns;
