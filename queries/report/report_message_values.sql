-- report_message_values: how often each size and duration occurs among the messages of a NIC: what quantiles are taken of.
--
-- Inputs: report_own_messages
-- Output:
--   node          VARCHAR  node
--   nic           VARCHAR  RDMA device; NULL where unknown
--   opcode_class  VARCHAR  write, read, atomic or send
--   alone         BOOLEAN  nothing else of the queue pair was in flight at the post
--   size_bin      BIGINT   size in eighths of a doubling; NULL without payload or completion: such have no bandwidth
--   measure       VARCHAR  bytes, post_ns (inside post_send) or flight_ns (from its return to the completion)
--   value         BIGINT   size in bytes, or duration in ns
--   n             BIGINT   messages
-- Assumes: values repeat, some thousand different ones a NIC however many messages there are. Quantiles of the messages
--          themselves would have to hold them all in memory.
CREATE OR REPLACE TEMP TABLE report_message_values AS
WITH binned AS (
  SELECT node, nic, opcode_class, outstanding_at_post = 0 AS alone,
    CASE WHEN bytes > 0 AND flight_ns > 0 THEN CAST(round(8 * log2(bytes)) AS BIGINT) END AS size_bin,
    bytes, exit_ns - enter_ns AS post_ns, flight_ns
  FROM report_own_messages
)
SELECT node, nic, opcode_class, alone, size_bin, 'bytes' AS measure, bytes AS value, count(*) AS n FROM binned GROUP BY ALL
UNION ALL
SELECT node, nic, opcode_class, alone, size_bin, 'post_ns', post_ns, count(*) FROM binned GROUP BY ALL
UNION ALL
SELECT node, nic, opcode_class, alone, size_bin, 'flight_ns', flight_ns, count(*) FROM binned GROUP BY ALL;
