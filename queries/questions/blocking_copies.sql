-- blocking_copies: copies whose API call returns only after the copy ended: the host stood still.
--
-- Inputs: kernel_with_launch
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run         VARCHAR  run
--   rank        BIGINT   rank
--   api         VARCHAR  call
--   copy_name   VARCHAR  kind of copy
--   n_copies    BIGINT   copies
--   p50_bytes   BIGINT   median size
--   copy_ns     BIGINT   time of the copies on the GPU, ns
--   blocked_ns  BIGINT   time in the calls, ns
-- Assumes: a copy from pageable memory blocks although its call is asynchronous by name; a call is told by its own times.
-- Example: FROM blocking_copies() ORDER BY blocked_ns DESC;
CREATE OR REPLACE MACRO blocking_copies(in_run := NULL) AS TABLE
SELECT k.run, k.rank, k.api, k.name AS copy_name, count(*) AS n_copies, quantile_disc(k.bytes, 0.5) AS p50_bytes,
    sum(k.duration_ns)::BIGINT AS copy_ns, sum(k.launch_ns)::BIGINT AS blocked_ns
FROM kernel_with_launch AS k
WHERE (in_run IS NULL OR k.run = in_run) AND k.op_class = 'copy' AND k.launch_end_ns >= k.end_ns
GROUP BY k.run, k.rank, k.api, k.name
ORDER BY k.run, blocked_ns DESC, k.rank, k.api, k.name;
