-- late_ranks: which ranks the others wait for, how persistently, and why.
--
-- Inputs: delay_matrix, delay_cost, steps, ranks, kernel_speed
-- Output:
--   run              VARCHAR  run
--   rank             BIGINT   rank; every rank has a row
--   delay_ns         BIGINT   time that the others waited for it, over all victims and steps
--   share            DOUBLE   part of all delay of the run
--   steps_late       BIGINT   steps in which it is charged most
--   steps            BIGINT   steps of the run with any delay
--   persistence      DOUBLE   steps_late / steps
--   worst_step       BIGINT   step with its largest delay
--   robust_z         DOUBLE   (delay - median of ranks) / (1.4826 MAD); with MAD 0 by the mean deviation, 1.2533 of it;
--                             NULL where all ranks are equal
--   category         VARCHAR  what it did for the longest part of the delay
--   class            VARCHAR  slower_kernels, uneven_work, late_launch, own_network, copies, idle or NULL without delay
--   slow_share       DOUBLE   part of its compute time in kernels that take it 2 % longer than the median rank
-- Assumes: class by where the delay lies: compute is slower_kernels where four fifths of its compute time are in
--   kernels slower than the median rank's (clocks, heat, power), else uneven_work (the others had fewer tokens); host
--   leaves and gpu_dependency are late_launch; network leaves are own_network. Charges that stay a wait are idle.
-- Example: SELECT rank, class, persistence FROM late_ranks WHERE robust_z > 3.5 ORDER BY delay_ns DESC;
CREATE OR REPLACE VIEW late_ranks AS
WITH everyone AS (
    SELECT DISTINCT run, rank FROM ranks WHERE rank IS NOT NULL
),
caused AS (
    SELECT run, culprit_rank AS rank, sum(delay_ns)::BIGINT AS delay_ns,
        count(*) FILTER (WHERE first_cause = 1) AS steps_late,
        first(step ORDER BY delay_ns DESC, step) AS worst_step
    FROM delay_matrix
    GROUP BY ALL
),
delayed AS (
    SELECT run, count(DISTINCT step) AS steps FROM delay_matrix GROUP BY run
),
speed AS (
    SELECT run, rank, sum(total_ns) FILTER (WHERE ratio > 1.02) / nullif(sum(total_ns), 0) AS slow_share
    FROM kernel_speed
    GROUP BY ALL
),
by_category AS (
    SELECT d.run, d.culprit_rank AS rank, d.category, sum(d.delay_ns) AS delay_ns,
        CASE
            WHEN d.category = 'compute' AND any_value(s.slow_share) >= 0.8 THEN 'slower_kernels'
            WHEN d.category = 'compute' THEN 'uneven_work'
            WHEN d.category LIKE 'host\_%' ESCAPE '\' OR d.category = 'gpu_dependency' THEN 'late_launch'
            WHEN d.category IN ('rdma_transfer', 'ctl_cpu', 'ctl_fetch', 'ctl_notify', 'blocking_rtt', 'net_latency',
                'net_excess', 'nvlink_transfer', 'comm_unattributed') THEN 'own_network'
            WHEN d.category = 'memcpy' THEN 'copies'
            ELSE 'idle'
        END AS class
    FROM delay_cost AS d
    LEFT JOIN speed AS s ON s.run = d.run AND s.rank = d.culprit_rank
    GROUP BY d.run, d.culprit_rank, d.category
),
by_class AS (
    SELECT run, rank, class, sum(delay_ns) AS delay_ns FROM by_category GROUP BY ALL
),
foremost AS (
    SELECT run, rank, first(class ORDER BY delay_ns DESC, class) AS class FROM by_class GROUP BY ALL
),
doing AS (
    SELECT run, rank, first(category ORDER BY delay_ns DESC, category) AS category FROM by_category GROUP BY ALL
),
measured AS (
    SELECT e.run, e.rank, coalesce(c.delay_ns, 0) AS delay_ns, coalesce(c.steps_late, 0) AS steps_late, c.worst_step,
        median(coalesce(c.delay_ns, 0)) OVER (PARTITION BY e.run) AS middle_ns
    FROM everyone AS e
    LEFT JOIN caused AS c USING (run, rank)
),
spread AS (
    SELECT *, median(abs(delay_ns - middle_ns)) OVER (PARTITION BY run) AS mad_ns,
        avg(abs(delay_ns - middle_ns)) OVER (PARTITION BY run) AS deviation_ns
    FROM measured
)
SELECT m.run, m.rank, m.delay_ns, m.delay_ns / nullif(sum(m.delay_ns) OVER (PARTITION BY m.run), 0) AS share,
    m.steps_late, coalesce(d.steps, 0) AS steps, m.steps_late / nullif(d.steps, 0) AS persistence, m.worst_step,
    (m.delay_ns - m.middle_ns) / nullif(CASE WHEN m.mad_ns > 0 THEN 1.4826 * m.mad_ns ELSE 1.2533 * m.deviation_ns END, 0)
        AS robust_z,
    o.category, l.class, s.slow_share
FROM spread AS m
LEFT JOIN delayed AS d USING (run)
LEFT JOIN foremost AS l USING (run, rank)
LEFT JOIN doing AS o USING (run, rank)
LEFT JOIN speed AS s USING (run, rank)
ORDER BY m.run, m.rank;
