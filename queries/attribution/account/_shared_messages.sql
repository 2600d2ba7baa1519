-- _shared_messages: other ranks' messages on the NICs of this rank: they occupy its wire too.
--
-- Inputs: node_messages (rdma_messages of all other ranks), _shared_nics, _devices
-- Output:
--   node     VARCHAR  node
--   nic      VARCHAR  device
--   rank     BIGINT   the other rank
--   exit_ns  BIGINT   return of post_send
--   bytes    BIGINT   payload
-- Assumes: where no NIC is shared the join has an empty side and nothing is read. A message in error is not served.
CREATE OR REPLACE TEMP TABLE _shared_messages AS
SELECT m.node, m.nic, m.rank, m.exit_ns, m.bytes
FROM node_messages AS m
JOIN (FROM _shared_nics SEMI JOIN _devices USING (node, nic)) AS s ON m.node = s.node AND m.nic = s.nic
WHERE coalesce(m.status, 0) = 0 AND m.bytes >= 0;
