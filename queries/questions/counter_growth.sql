-- counter_growth: counters that grew during a run, by device.
--
-- Inputs: counters
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run          VARCHAR  run
--   node         VARCHAR  node
--   device       VARCHAR  RDMA or network device, or GPU
--   port         BIGINT   port; NULL for GPUs
--   counter      VARCHAR  name, as its driver gives it
--   n_samples    BIGINT   readings
--   first_value  DOUBLE   first reading, in the counter's unit
--   last_value   DOUBLE   last reading, in the counter's unit
--   grown_value  DOUBLE   last_value - first_value; negative: it was reset
--   duration_ns  BIGINT   from the first to the last reading, ns
-- Example: FROM counter_growth() WHERE counter LIKE '%err%' OR counter LIKE '%timeout%';
CREATE OR REPLACE MACRO counter_growth(in_run := NULL) AS TABLE
SELECT c.run, c.node, c.device, c.port, c.counter, count(*) AS n_samples, arg_min(c.value, c.at_ns) AS first_value,
    arg_max(c.value, c.at_ns) AS last_value, arg_max(c.value, c.at_ns) - arg_min(c.value, c.at_ns) AS grown_value,
    max(c.at_ns) - min(c.at_ns) AS duration_ns
FROM counters AS c
WHERE in_run IS NULL OR c.run = in_run
GROUP BY c.run, c.node, c.device, c.port, c.counter
HAVING grown_value <> 0
ORDER BY c.run, c.node, c.device, c.port, c.counter;
