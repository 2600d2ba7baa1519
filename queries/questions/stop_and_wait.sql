-- stop_and_wait: how many messages were posted only after the one before was complete, by queue pair.
--
-- Inputs: message_with_step
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run              VARCHAR  run
--   rank             BIGINT   rank
--   nic              VARCHAR  RDMA device; NULL where unknown
--   qp               BIGINT   queue pair
--   peer_rank        BIGINT   receiver; NULL where unknown
--   n_messages       BIGINT   messages
--   n_blocked        BIGINT   of them blocked (rdma_messages)
--   blocked_percent  DOUBLE   n_blocked of n_messages, %
--   flight_ns        BIGINT   flight of the blocked ones in all, ns
-- Example: FROM stop_and_wait() WHERE blocked_percent > 50;
CREATE OR REPLACE MACRO stop_and_wait(in_run := NULL) AS TABLE
SELECT m.run, m.rank, m.nic, m.qp, m.peer_rank, count(*) AS n_messages, count_if(m.blocked)::BIGINT AS n_blocked,
    100.0 * count_if(m.blocked) / count(*) AS blocked_percent,
    coalesce(sum(m.flight_ns) FILTER (m.blocked), 0)::BIGINT AS flight_ns
FROM message_with_step AS m
WHERE in_run IS NULL OR m.run = in_run
GROUP BY m.run, m.rank, m.nic, m.qp, m.peer_rank
ORDER BY m.run, m.rank, m.nic, m.qp, m.peer_rank;
