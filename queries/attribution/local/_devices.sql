-- _devices: the NICs that a rank's messages used.
--
-- Inputs: rdma_messages
-- Output:
--   rank        BIGINT   rank
--   node        VARCHAR  node
--   nic         VARCHAR  device; NULL where unknown
--   n           BIGINT   messages
--   bytes       BIGINT   payload
CREATE OR REPLACE TEMP TABLE _devices AS
SELECT rank, node, nic, count(*) AS n, sum(bytes)::BIGINT AS bytes FROM rdma_messages GROUP BY ALL ORDER BY ALL;
