-- _receiver_excess: how far the excess of flights gathers at one receiver.
--
-- Inputs: _flights
-- Output:
--   peer_rank      BIGINT  receiver
--   excess_share   DOUBLE  its part of all excess, 0 to 1
--   message_share  DOUBLE  its part of all messages, 0 to 1
--   concentration  DOUBLE  excess_share / message_share; even traffic has 1
--   senders        BIGINT  ranks that send to it
CREATE OR REPLACE TEMP TABLE _receiver_excess AS
SELECT
    peer_rank,
    sum(excess_ns) / nullif(sum(sum(excess_ns)) OVER (), 0) AS excess_share,
    sum(n) / sum(sum(n)) OVER () AS message_share,
    excess_share / message_share AS concentration,
    count(DISTINCT rank) AS senders
FROM _flights
WHERE peer_rank IS NOT NULL
GROUP BY peer_rank
ORDER BY concentration DESC NULLS LAST, peer_rank;
