-- kernel_speed: each rank's time in each compute kernel against the median of the ranks.
--
-- Inputs: gpu_ops
-- Output:
--   run           VARCHAR  run
--   rank          BIGINT   rank
--   name          VARCHAR  kernel
--   kernels       BIGINT   how often it ran
--   total_ns      BIGINT   its time, summed over streams
--   median_ns     DOUBLE   median of total_ns over the ranks that ran it
--   ratio         DOUBLE   total_ns / median_ns
--   ranks         BIGINT   ranks that ran it
-- Example: SELECT rank, sum(total_ns) / sum(median_ns) FROM kernel_speed GROUP BY rank ORDER BY 2 DESC;
CREATE OR REPLACE VIEW kernel_speed AS
WITH by_rank AS (
    SELECT run, rank, name, count(*) AS kernels, sum(end_ns - start_ns)::BIGINT AS total_ns
    FROM gpu_ops
    WHERE op_class = 'compute' AND end_ns >= start_ns AND rank IS NOT NULL
    GROUP BY ALL
)
SELECT run, rank, name, kernels, total_ns,
    median(total_ns) OVER same AS median_ns,
    total_ns / nullif(median(total_ns) OVER same, 0) AS ratio,
    count(*) OVER same AS ranks
FROM by_rank
WINDOW same AS (PARTITION BY run, name);
