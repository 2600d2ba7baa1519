-- report_messages: statistics of the RDMA messages of each node, NIC and class of operation.
--
-- Inputs: report_own_messages, report_message_values
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
WITH totals AS (
  SELECT node, nic, opcode_class, count(*) AS n, sum(bytes) AS bytes, min(bytes) AS size_min_bytes, max(bytes) AS size_max_bytes,
    count(*) FILTER (outstanding_at_post = 0) AS alone, count(*) FILTER (blocked) AS blocked,
    count(*) FILTER (chain) AS chained, count(*) FILTER (complete_ns IS NULL) AS no_completion,
    count(*) FILTER (status <> 0) AS failed
  FROM report_own_messages
  GROUP BY node, nic, opcode_class
), ranked AS (
  SELECT node, nic, opcode_class, measure, value, sum(n) OVER (path ORDER BY value) AS upto, sum(n) OVER (path) AS total
  FROM (
    SELECT node, nic, opcode_class, measure, value, sum(n) AS n
    FROM report_message_values
    WHERE value IS NOT NULL
    GROUP BY ALL
  )
  WINDOW path AS (PARTITION BY node, nic, opcode_class, measure)
), quantiles AS (
  SELECT node, nic, opcode_class,
    min(value) FILTER (measure = 'bytes' AND 2 * upto >= total) AS size_p50_bytes,
    min(value) FILTER (measure = 'post_ns' AND 2 * upto >= total) AS post_p50_ns,
    min(value) FILTER (measure = 'post_ns' AND 100 * upto >= 95 * total) AS post_p95_ns,
    min(value) FILTER (measure = 'flight_ns' AND 2 * upto >= total) AS flight_p50_ns,
    min(value) FILTER (measure = 'flight_ns' AND 100 * upto >= 95 * total) AS flight_p95_ns
  FROM ranked
  GROUP BY node, nic, opcode_class
)
SELECT t.node, t.nic, t.opcode_class, t.n, t.bytes, t.size_min_bytes, q.size_p50_bytes, t.size_max_bytes, q.post_p50_ns,
  q.post_p95_ns, q.flight_p50_ns, q.flight_p95_ns, t.alone, t.blocked, t.chained, t.no_completion, t.failed
FROM totals AS t
LEFT JOIN quantiles AS q
  ON t.node IS NOT DISTINCT FROM q.node AND t.nic IS NOT DISTINCT FROM q.nic AND t.opcode_class IS NOT DISTINCT FROM q.opcode_class
ORDER BY t.node, t.nic, t.opcode_class;
