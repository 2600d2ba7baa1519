-- _op_network: when each operation's own messages were posted and complete.
--
-- Inputs: rdma_messages
-- Output:
--   rank              BIGINT   rank
--   op_id             BIGINT   operation (_operations)
--   first_post_ns     BIGINT   its first message enters post_send, ns
--   last_post_ns      BIGINT   its last message leaves post_send, ns
--   last_complete_ns  BIGINT   its last completion was seen (of lost ones: had been seen at the latest), ns; NULL: none
--   n_messages        BIGINT   messages
--   n_lost            BIGINT   messages whose completion was never seen
--   bytes             BIGINT   payload
CREATE OR REPLACE TEMP TABLE _op_network AS
SELECT
    rank,
    op_id,
    min(enter_ns) AS first_post_ns,
    max(exit_ns) AS last_post_ns,
    max(released_ns) AS last_complete_ns,
    count(*) AS n_messages,
    count(*) FILTER (complete_ns IS NULL) AS n_lost,
    sum(bytes)::BIGINT AS bytes
FROM rdma_messages
WHERE op_id IS NOT NULL
GROUP BY ALL
ORDER BY rank, op_id;
