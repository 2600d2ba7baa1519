-- report_sizes: size against time in flight, for the bandwidth plot: messages in bins of an eighth of a doubling.
--
-- Inputs: report_own_messages
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
SELECT node, nic, opcode_class, outstanding_at_post = 0 AS alone, count(*) AS n, quantile_disc(bytes, 0.5) AS bytes,
  quantile_disc(flight_ns, 0.25) AS flight_p25_ns, quantile_disc(flight_ns, 0.5) AS flight_p50_ns,
  quantile_disc(flight_ns, 0.75) AS flight_p75_ns
FROM report_own_messages
WHERE bytes > 0 AND flight_ns > 0
GROUP BY node, nic, opcode_class, outstanding_at_post = 0, CAST(round(8 * log2(bytes)) AS BIGINT)
ORDER BY node, nic, opcode_class, alone, bytes;
