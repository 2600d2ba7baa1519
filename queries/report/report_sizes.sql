-- report_sizes: size against time in flight, for the bandwidth plot: messages in bins of an eighth of a doubling.
--
-- Inputs: report_message_values
-- Output:
--   node           VARCHAR  node
--   nic            VARCHAR  RDMA device; NULL where unknown
--   opcode_class   VARCHAR  write, read, atomic or send
--   alone          BOOLEAN  nothing else of the queue pair was in flight at the post
--   n              BIGINT   messages in the bin
--   bytes          BIGINT   median size, bytes
--   flight_p25_ns  BIGINT   first quartile of the time in flight, ns
--   flight_p50_ns  BIGINT   median, ns
--   flight_p75_ns  BIGINT   third quartile, ns
-- Assumes: a message without payload or completion has no bandwidth and is left out.
CREATE OR REPLACE TEMP TABLE report_sizes AS
WITH ranked AS (
  SELECT *, sum(n) OVER (bin ORDER BY value) AS upto, sum(n) OVER (bin) AS total
  FROM report_message_values
  WHERE size_bin IS NOT NULL AND measure IN ('bytes', 'flight_ns')
  WINDOW bin AS (PARTITION BY node, nic, opcode_class, alone, size_bin, measure)
)
SELECT node, nic, opcode_class, alone, CAST(any_value(total) AS BIGINT) AS n,
  min(value) FILTER (measure = 'bytes' AND 2 * upto >= total) AS bytes,
  min(value) FILTER (measure = 'flight_ns' AND 4 * upto >= total) AS flight_p25_ns,
  min(value) FILTER (measure = 'flight_ns' AND 2 * upto >= total) AS flight_p50_ns,
  min(value) FILTER (measure = 'flight_ns' AND 4 * upto >= 3 * total) AS flight_p75_ns
FROM ranked
GROUP BY node, nic, opcode_class, alone, size_bin
ORDER BY node, nic, opcode_class, alone, bytes;
