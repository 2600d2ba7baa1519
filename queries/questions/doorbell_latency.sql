-- doorbell_latency: time in post_send by thread and core.
--
-- Inputs: rdma_posts
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run              VARCHAR  run
--   node             VARCHAR  node
--   rank             BIGINT   rank
--   tid              BIGINT   thread that posts
--   cpu              BIGINT   core
--   n_posts          BIGINT   posts
--   p50_ns           BIGINT   median time in post_send, ns
--   p90_ns           BIGINT   90th percentile, ns
--   p99_ns           BIGINT   99th percentile, ns
--   max_ns           BIGINT   longest, ns
--   doorbell_p50_ns  BIGINT   median from the doorbell write to the return, ns; NULL without the offset probe
-- Assumes: exit_ns has the probe's cost subtracted where it was calibrated; percentiles are nearest rank.
-- Example: FROM doorbell_latency() ORDER BY p99_ns DESC;
CREATE OR REPLACE MACRO doorbell_latency(in_run := NULL) AS TABLE
SELECT p.run, p.node, p.rank, p.tid, p.cpu, count(*) AS n_posts,
    quantile_disc(p.exit_ns - p.enter_ns, 0.5) AS p50_ns, quantile_disc(p.exit_ns - p.enter_ns, 0.9) AS p90_ns,
    quantile_disc(p.exit_ns - p.enter_ns, 0.99) AS p99_ns, max(p.exit_ns - p.enter_ns) AS max_ns,
    quantile_disc(p.exit_ns - p.doorbell_ns, 0.5) AS doorbell_p50_ns
FROM rdma_posts AS p
WHERE (in_run IS NULL OR p.run = in_run) AND p.exit_ns >= p.enter_ns
GROUP BY p.run, p.node, p.rank, p.tid, p.cpu
ORDER BY p.run, p.node, p.rank, p.tid, p.cpu;
