-- top_kernels: the kernels and copies with the most exposed time, over all ranks.
--
-- Inputs: op_exposure
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
--   top     BIGINT   rows of each run
-- Output:
--   run         VARCHAR  run
--   op_class    VARCHAR  compute, comm or copy
--   name        VARCHAR  kernel, or kind of copy
--   n_ops       BIGINT   how often it ran
--   total_ns    BIGINT   its time on the GPUs, ns
--   exposed_ns  BIGINT   its exposed time in steps, ns (op_exposure)
-- Example: FROM top_kernels(top := 10);
CREATE OR REPLACE MACRO top_kernels(in_run := NULL, top := 20) AS TABLE
SELECT o.run, o.op_class, o.name, count(*) AS n_ops, sum(o.duration_ns)::BIGINT AS total_ns,
    sum(o.exposed_ns)::BIGINT AS exposed_ns
FROM op_exposure AS o
WHERE in_run IS NULL OR o.run = in_run
GROUP BY o.run, o.op_class, o.name
QUALIFY row_number() OVER (PARTITION BY o.run ORDER BY sum(o.exposed_ns) DESC, o.op_class, o.name) <= top
ORDER BY o.run, exposed_ns DESC, o.op_class, o.name;
