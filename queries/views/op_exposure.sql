-- op_exposure: each GPU operation with the part of it that nothing computes beside.
--
-- Inputs: gpu_ops, segments
-- Output:
--   run          VARCHAR  run
--   rank         BIGINT   rank
--   op_class     VARCHAR  compute, comm or copy
--   name         VARCHAR  kernel, or kind of copy
--   start_ns     BIGINT   start, ns on the run clock
--   end_ns       BIGINT   end, ns on the run clock
--   duration_ns  BIGINT   time on the GPU, ns
--   exposed_ns   BIGINT   compute: all of it that lies in steps; others: the part in steps without compute, ns
-- Assumes: segments tile the steps; a running sum of them is read at both ends, so it needs no range join.
-- Example: SELECT name, sum(exposed_ns) FROM op_exposure WHERE op_class = 'comm' GROUP BY name ORDER BY 2 DESC;
CREATE OR REPLACE VIEW op_exposure AS
WITH pieces AS (
    SELECT run, rank, start_ns, end_ns, (category = 'compute') AS computes,
        coalesce(sum(CASE WHEN category = 'compute' THEN end_ns - start_ns ELSE 0 END) OVER before, 0)::BIGINT AS compute_ns,
        coalesce(sum(CASE WHEN category = 'compute' THEN 0 ELSE end_ns - start_ns END) OVER before, 0)::BIGINT AS other_ns
    FROM segments
    WINDOW before AS (PARTITION BY run, rank ORDER BY start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
operations AS (
    SELECT run, rank, op_class, name, start_ns, end_ns FROM gpu_ops WHERE end_ns >= start_ns
),
begun AS (
    SELECT o.*,
        coalesce(p.compute_ns + CASE WHEN p.computes THEN least(o.start_ns, p.end_ns) - p.start_ns ELSE 0 END, 0) AS compute_0_ns,
        coalesce(p.other_ns + CASE WHEN p.computes THEN 0 ELSE least(o.start_ns, p.end_ns) - p.start_ns END, 0) AS other_0_ns
    FROM operations AS o
    ASOF LEFT JOIN pieces AS p ON o.run = p.run AND o.rank = p.rank AND o.start_ns >= p.start_ns
),
ended AS (
    SELECT b.*,
        coalesce(p.compute_ns + CASE WHEN p.computes THEN least(b.end_ns, p.end_ns) - p.start_ns ELSE 0 END, 0) AS compute_1_ns,
        coalesce(p.other_ns + CASE WHEN p.computes THEN 0 ELSE least(b.end_ns, p.end_ns) - p.start_ns END, 0) AS other_1_ns
    FROM begun AS b
    ASOF LEFT JOIN pieces AS p ON b.run = p.run AND b.rank = p.rank AND b.end_ns >= p.start_ns
)
SELECT run, rank, op_class, name, start_ns, end_ns, end_ns - start_ns AS duration_ns,
    CASE WHEN op_class = 'compute' THEN compute_1_ns - compute_0_ns ELSE other_1_ns - other_0_ns END AS exposed_ns
FROM ended;
