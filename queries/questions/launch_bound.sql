-- launch_bound: regions in which the GPU idles again and again for launches.
--
-- Inputs: segments
-- Arguments:
--   in_run    VARCHAR  one run; NULL: all
--   apart_ns  BIGINT   gaps that are further apart are two regions, ns
--   top       BIGINT   rows of each run
-- Output:
--   run           VARCHAR  run
--   rank          BIGINT   rank
--   step          BIGINT   step
--   start_ns      BIGINT   first idle instant, ns on the run clock
--   end_ns        BIGINT   last idle instant, ns on the run clock
--   n_gaps        BIGINT   gaps that wait for a launch
--   idle_ns       BIGINT   time in them, ns
--   idle_percent  DOUBLE   part of the region, %
-- Assumes: gaps are pieces of category host_launch (the launching thread runs and has not launched yet).
-- Example: FROM launch_bound(top := 5);
CREATE OR REPLACE MACRO launch_bound(in_run := NULL, apart_ns := 100000, top := 20) AS TABLE
WITH gaps AS (
    SELECT s.run, s.rank, s.step, s.start_ns, s.end_ns,
        coalesce(s.start_ns - lag(s.end_ns) OVER (PARTITION BY s.run, s.rank, s.step ORDER BY s.start_ns) > apart_ns, true)
            AS opens
    FROM segments AS s
    WHERE (in_run IS NULL OR s.run = in_run) AND s.category = 'host_launch'
),
numbered AS (
    SELECT g.*, count_if(g.opens) OVER (
        PARTITION BY g.run, g.rank, g.step ORDER BY g.start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS region
    FROM gaps AS g
),
regions AS (
    SELECT n.run, n.rank, n.step, min(n.start_ns) AS start_ns, max(n.end_ns) AS end_ns, count(*) AS n_gaps,
        sum(n.end_ns - n.start_ns)::BIGINT AS idle_ns
    FROM numbered AS n
    GROUP BY n.run, n.rank, n.step, n.region
)
SELECT r.run, r.rank, r.step, r.start_ns, r.end_ns, r.n_gaps, r.idle_ns,
    100.0 * r.idle_ns / nullif(r.end_ns - r.start_ns, 0) AS idle_percent
FROM regions AS r
QUALIFY row_number() OVER (PARTITION BY r.run ORDER BY r.idle_ns DESC, r.rank, r.start_ns) <= top
ORDER BY r.run, r.idle_ns DESC, r.rank, r.start_ns;
