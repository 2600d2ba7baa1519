-- report_messages: statistics of the RDMA messages of each node, NIC and class of operation.
--
-- Inputs: report_own_messages
-- Output:
--   node             VARCHAR  node
--   nic              VARCHAR  RDMA device; NULL where unknown
--   opcode_class     VARCHAR  write, read, atomic or send
--   n                BIGINT   messages
--   bytes            HUGEINT  payload in all, bytes
--   size_min_bytes   BIGINT   smallest, bytes
--   size_p50_bytes   BIGINT   median, bytes
--   size_max_bytes   BIGINT   largest, bytes
--   post_p50_ns      BIGINT   median time inside post_send, ns
--   post_p95_ns      BIGINT   95th percentile of it, ns
--   flight_p50_ns    BIGINT   median time from the return of the post to the completion, ns
--   flight_p95_ns    BIGINT   95th percentile of it, ns
--   alone            BIGINT   posted with nothing else of the queue pair in flight
--   blocked          BIGINT   posted only after the completion of the one before was seen
--   chained          BIGINT   part of a stop-and-wait chain
--   no_completion    BIGINT   completion never seen
--   failed           BIGINT   completed with an error
CREATE OR REPLACE TEMP TABLE report_messages AS
SELECT node, nic, opcode_class, count(*) AS n, sum(bytes) AS bytes,
  min(bytes) AS size_min_bytes, quantile_disc(bytes, 0.5) AS size_p50_bytes, max(bytes) AS size_max_bytes,
  quantile_disc(exit_ns - enter_ns, 0.5) AS post_p50_ns, quantile_disc(exit_ns - enter_ns, 0.95) AS post_p95_ns,
  quantile_disc(flight_ns, 0.5) AS flight_p50_ns, quantile_disc(flight_ns, 0.95) AS flight_p95_ns,
  count(*) FILTER (outstanding_at_post = 0) AS alone, count(*) FILTER (blocked) AS blocked,
  count(*) FILTER (chain) AS chained, count(*) FILTER (complete_ns IS NULL) AS no_completion,
  count(*) FILTER (status <> 0) AS failed
FROM report_own_messages
GROUP BY node, nic, opcode_class
ORDER BY node, nic, opcode_class;
