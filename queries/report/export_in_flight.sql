-- export_in_flight: messages and bytes in flight of each NIC, a counter at each change.
--
-- Inputs: export_window, rdma_messages
-- Output:
--   rank      BIGINT   rank
--   track     VARCHAR  name of the counter
--   at_ns     BIGINT   when it changes, ns on the run clock
--   messages  HUGEINT  in flight from then on
--   bytes     HUGEINT  payload in flight from then on
-- Assumes: a message without completion is never in flight: how long it was is not known.
CREATE OR REPLACE TEMP TABLE export_in_flight AS
WITH ends AS (
  SELECT m.rank, coalesce(m.nic, 'NIC') AS nic, m.exit_ns AS at_ns, 1 AS n, m.bytes
  FROM rdma_messages AS m
  JOIN export_window AS w ON w.rank = m.rank AND m.enter_ns < w.end_ns AND m.complete_ns >= w.start_ns
  UNION ALL
  SELECT m.rank, coalesce(m.nic, 'NIC'), m.complete_ns, -1, -m.bytes
  FROM rdma_messages AS m
  JOIN export_window AS w ON w.rank = m.rank AND m.enter_ns < w.end_ns AND m.complete_ns >= w.start_ns
), changes AS (
  SELECT rank, nic, at_ns, sum(n) AS n, sum(coalesce(bytes, 0)) AS bytes
  FROM ends
  GROUP BY rank, nic, at_ns
)
SELECT rank, nic || ' in flight' AS track, at_ns, sum(n) OVER w AS messages, sum(bytes) OVER w AS bytes
FROM changes
WINDOW w AS (PARTITION BY rank, nic ORDER BY at_ns ROWS UNBOUNDED PRECEDING)
ORDER BY rank, track, at_ns;
