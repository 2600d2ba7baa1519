-- rail_traffic: payload by class of path: same node, same rail, across rails.
--
-- Inputs: message_with_step
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run            VARCHAR  run
--   rank           BIGINT   rank
--   peer_class     VARCHAR  same_node, same_rail or cross_rail; NULL where unknown
--   n_messages     BIGINT   messages
--   total_bytes    BIGINT   their payload
--   share_percent  DOUBLE   part of the rank's payload, %
--   p50_ns         BIGINT   median flight, ns; NULL without a completion
-- Example: FROM rail_traffic() WHERE peer_class = 'cross_rail';
CREATE OR REPLACE MACRO rail_traffic(in_run := NULL) AS TABLE
SELECT m.run, m.rank, m.peer_class, count(*) AS n_messages, sum(m.bytes)::BIGINT AS total_bytes,
    100.0 * sum(m.bytes) / nullif(sum(sum(m.bytes)) OVER (PARTITION BY m.run, m.rank), 0) AS share_percent,
    quantile_disc(m.flight_ns, 0.5) AS p50_ns
FROM message_with_step AS m
WHERE in_run IS NULL OR m.run = in_run
GROUP BY m.run, m.rank, m.peer_class
ORDER BY m.run, m.rank, m.peer_class;
