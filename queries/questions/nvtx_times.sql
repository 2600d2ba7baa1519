-- nvtx_times: time in NVTX ranges by text.
--
-- Inputs: nvtx
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
--   top     BIGINT   rows of each run
-- Output:
--   run       VARCHAR  run
--   rank      BIGINT   rank
--   text      VARCHAR  the range's text
--   n_ranges  BIGINT   closed ranges
--   total_ns  BIGINT   host time in them, nested ones in both, ns
--   p50_ns    BIGINT   median, ns
--   max_ns    BIGINT   longest, ns
-- Assumes: top counts by rank.
-- Example: FROM nvtx_times(top := 10) WHERE rank = 0;
CREATE OR REPLACE MACRO nvtx_times(in_run := NULL, top := 20) AS TABLE
SELECT n.run, n.rank, n.text, count(*) AS n_ranges, sum(n.end_ns - n.start_ns)::BIGINT AS total_ns,
    quantile_disc(n.end_ns - n.start_ns, 0.5) AS p50_ns, max(n.end_ns - n.start_ns) AS max_ns
FROM nvtx AS n
WHERE (in_run IS NULL OR n.run = in_run) AND n.kind <> 'mark' AND n.end_ns >= n.start_ns
GROUP BY n.run, n.rank, n.text
QUALIFY row_number() OVER (PARTITION BY n.run, n.rank ORDER BY sum(n.end_ns - n.start_ns) DESC, n.text) <= top
ORDER BY n.run, n.rank, total_ns DESC, n.text;
