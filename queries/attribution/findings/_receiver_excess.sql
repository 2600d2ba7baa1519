-- _receiver_excess: how far the excess of flights gathers at one receiver.
--
-- Inputs: _flights, ranks
-- Output, a row for each NIC that receives, and for each rank whose NIC is not known:
--   peer_rank      BIGINT   receiver; of several behind one NIC the one with most excess
--   node           VARCHAR  its node
--   nic            VARCHAR  its NIC, all of them where it uses several; NULL where unknown
--   receivers      BIGINT   ranks behind that NIC that receive
--   excess_share   DOUBLE   its part of all excess, 0 to 1
--   message_share  DOUBLE   its part of all messages, 0 to 1
--   concentration  DOUBLE   excess_share / message_share; even traffic has 1
--   among_like     DOUBLE   the same among NICs that as many ranks receive behind: what ranks that share a NIC queue for
--                           by that alone is left out
--   senders        BIGINT   ranks that send to it
-- Assumes: a rank receives on the NICs that it sends on.
CREATE OR REPLACE TEMP TABLE _receiver_excess AS
WITH used AS (
    SELECT rank, string_agg(DISTINCT nic, ', ' ORDER BY nic) AS nic FROM _flights GROUP BY rank
),
placed AS (
    SELECT r.rank, any_value(r.node) AS node, coalesce(any_value(u.nic), any_value(r.nic)) AS nic
    FROM ranks AS r
    LEFT JOIN used AS u ON r.rank = u.rank
    GROUP BY r.rank
),
received AS (
    SELECT f.peer_rank, f.rank, p.node, p.nic, f.excess_ns, f.n,
        -- Ranks behind one NIC are one receiver; a rank whose NIC is not known is one by itself.
        CASE WHEN p.node IS NULL OR p.nic IS NULL THEN f.peer_rank END AS alone,
        sum(f.excess_ns) OVER (PARTITION BY f.peer_rank) AS own_ns
    FROM _flights AS f
    LEFT JOIN placed AS p ON f.peer_rank = p.rank
    WHERE f.peer_rank IS NOT NULL
),
by_nic AS (
    SELECT
        arg_max(peer_rank, (own_ns, -peer_rank)) AS peer_rank,
        node,
        nic,
        count(DISTINCT peer_rank) AS receivers,
        sum(excess_ns) AS excess_ns,
        sum(n) AS n,
        count(DISTINCT rank) AS senders
    FROM received
    GROUP BY node, nic, alone
)
SELECT
    peer_rank,
    node,
    nic,
    receivers,
    excess_ns / nullif(sum(excess_ns) OVER (), 0) AS excess_share,
    n / sum(n) OVER () AS message_share,
    excess_share / message_share AS concentration,
    (excess_ns / nullif(sum(excess_ns) OVER (PARTITION BY receivers), 0)) / (n / sum(n) OVER (PARTITION BY receivers)) AS among_like,
    senders
FROM by_nic
ORDER BY least(concentration, among_like) DESC NULLS LAST, peer_rank;
