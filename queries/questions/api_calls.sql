-- api_calls: time in CUDA calls by name: where the host spends it.
--
-- Inputs: cuda_api
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run       VARCHAR  run
--   rank      BIGINT   rank
--   name      VARCHAR  function
--   n_calls   BIGINT   calls
--   total_ns  BIGINT   time in them, over all threads, ns
--   p50_ns    BIGINT   median, ns
--   p99_ns    BIGINT   99th percentile, ns
--   max_ns    BIGINT   longest, ns
-- Example: FROM api_calls() WHERE name LIKE '%Synchronize%';
CREATE OR REPLACE MACRO api_calls(in_run := NULL) AS TABLE
SELECT a.run, a.rank, a.name, count(*) AS n_calls, sum(a.end_ns - a.start_ns)::BIGINT AS total_ns,
    quantile_disc(a.end_ns - a.start_ns, 0.5) AS p50_ns, quantile_disc(a.end_ns - a.start_ns, 0.99) AS p99_ns,
    max(a.end_ns - a.start_ns) AS max_ns
FROM cuda_api AS a
WHERE (in_run IS NULL OR a.run = in_run) AND a.end_ns >= a.start_ns
GROUP BY a.run, a.rank, a.name
ORDER BY a.run, a.rank, total_ns DESC, a.name;
