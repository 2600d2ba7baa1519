-- collectives: communication operations by kind and size, with their bandwidths.
--
-- Inputs: comm_ops, alg_bandwidth, bus_bandwidth
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run              VARCHAR  run
--   op               VARCHAR  operation
--   n_ranks          BIGINT   ranks of the communicator
--   size_bytes       BIGINT   size of the operation
--   n_ops            BIGINT   operations, each once a rank
--   p50_ns           BIGINT   median time of the kernel, ns
--   p99_ns           BIGINT   99th percentile, ns
--   alg_bytes_per_s  DOUBLE   size over the median time
--   bus_bytes_per_s  DOUBLE   bus bandwidth at the median; NULL without a factor
-- Assumes: the time is a rank's own, from its arrival (the kernel's start; without one the record's start) to its end, waiting included.
-- Example: FROM collectives() ORDER BY size_bytes DESC;
CREATE OR REPLACE MACRO collectives(in_run := NULL) AS TABLE
WITH sized AS (
    SELECT c.run, c.op, c.n_ranks, c.bytes AS size_bytes, c.end_ns - coalesce(c.arrival_ns, c.start_ns) AS duration_ns
    FROM comm_ops AS c
    WHERE (in_run IS NULL OR c.run = in_run) AND c.end_ns >= coalesce(c.arrival_ns, c.start_ns)
)
SELECT s.run, s.op, s.n_ranks, s.size_bytes, count(*) AS n_ops, quantile_disc(s.duration_ns, 0.5) AS p50_ns,
    quantile_disc(s.duration_ns, 0.99) AS p99_ns, alg_bandwidth(s.size_bytes, quantile_disc(s.duration_ns, 0.5)) AS alg_bytes_per_s,
    bus_bandwidth(s.op, s.size_bytes, s.n_ranks, quantile_disc(s.duration_ns, 0.5)) AS bus_bytes_per_s
FROM sized AS s
GROUP BY s.run, s.op, s.n_ranks, s.size_bytes
ORDER BY s.run, s.op, s.n_ranks, s.size_bytes;
