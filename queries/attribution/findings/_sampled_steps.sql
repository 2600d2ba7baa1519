-- _sampled_steps: evenly spread counted steps of each rank that communicates, to look at its kernels one by one.
--
-- Inputs: gpu_ops, steps, _counted_steps, thresholds
-- Output, a row for each bin of time that a step touches:
--   rank      BIGINT   rank
--   start_ns  BIGINT   start of the step
--   end_ns    BIGINT   end of the step
--   bits      INTEGER  bins are 2^bits ns long, the same for all ranks
--   bin       BIGINT   start_ns >> bits of what lies in it
-- Assumes: a step has some four bins. With them an operation's step is found by a hash join on (rank, bin), a tenth of
--   the work of ASOF over every operation. A table, so that the planner knows how few they are.
CREATE OR REPLACE TEMP TABLE _sampled_steps AS
WITH counted AS (
    SELECT s.rank, s.start_ns, s.end_ns,
        row_number() OVER (PARTITION BY s.rank ORDER BY s.start_ns, s.step) - 1 AS n,
        count(*) OVER (PARTITION BY s.rank) AS steps
    FROM steps AS s
    JOIN _counted_steps AS c USING (rank, step)
    WHERE s.rank IN (SELECT rank FROM gpu_ops WHERE op_class = 'comm') AND s.end_ns > s.start_ns
),
sampled AS (
    SELECT rank, start_ns, end_ns
    FROM counted
    WHERE n % ceil(steps / threshold('sm_tax', 'steps'))::BIGINT = 0
),
width AS (
    SELECT greatest(0, ceil(log2(sum(end_ns - start_ns) / (4.0 * count(*)))))::INTEGER AS bits FROM sampled
)
SELECT s.rank, s.start_ns, s.end_ns, w.bits, unnest(range(s.start_ns >> w.bits, ((s.end_ns - 1) >> w.bits) + 1)) AS bin
FROM sampled AS s
CROSS JOIN width AS w;
