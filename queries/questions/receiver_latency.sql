-- receiver_latency: flight of messages by receiver: an overloaded receiver is slow from all senders.
--
-- Inputs: message_with_step
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run          VARCHAR  run
--   peer_rank    BIGINT   receiver; NULL where unknown
--   n_senders    BIGINT   ranks that sent to it
--   n_messages   BIGINT   messages
--   total_bytes  BIGINT   their payload
--   p50_ns       BIGINT   median flight, ns
--   p99_ns       BIGINT   99th percentile, ns
-- Example: FROM receiver_latency() ORDER BY p99_ns DESC;
CREATE OR REPLACE MACRO receiver_latency(in_run := NULL) AS TABLE
SELECT m.run, m.peer_rank, count(DISTINCT m.rank) AS n_senders, count(*) AS n_messages, sum(m.bytes)::BIGINT AS total_bytes,
    quantile_disc(m.flight_ns, 0.5) AS p50_ns, quantile_disc(m.flight_ns, 0.99) AS p99_ns
FROM message_with_step AS m
WHERE (in_run IS NULL OR m.run = in_run) AND m.flight_ns >= 0
GROUP BY m.run, m.peer_rank
ORDER BY m.run, m.peer_rank;
