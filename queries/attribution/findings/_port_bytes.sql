-- _port_bytes: bytes that each port sent over the capture, and what the messages that were seen account for.
--
-- Inputs: _counter_growth, rdma_messages
-- Output:
--   node        VARCHAR  node
--   device      VARCHAR  RDMA device
--   link_layer  VARCHAR  InfiniBand or Ethernet
--   sent_bytes  DOUBLE   bytes that left the port, headers included
--   seen_bytes  DOUBLE   payload and headers of the messages that were seen; 0 where none was. Those whose NIC has no
--                        name are shared out over the node's ports by what these sent
-- Assumes: port_xmit_data counts words of 4 bytes (InfiniBand specification, PortXmitData); Ethernet's vport counter
--          counts bytes. Headers: 24 bytes a packet of 4096 bytes (LRH 8, BTH 12, ICRC 4), 16 more on the first (RETH).
CREATE OR REPLACE TEMP TABLE _port_bytes AS
WITH sent AS (
    SELECT
        node,
        device,
        any_value(link_layer) AS link_layer,
        sum(CASE counter WHEN 'port_xmit_data' THEN 4 * growth ELSE growth END) AS sent_bytes
    FROM _counter_growth
    WHERE counter IN ('port_xmit_data', 'tx_vport_rdma_unicast_bytes')
    GROUP BY node, device
),
seen AS (
    SELECT node, nic AS device, sum(bytes + 24 * greatest(1, ceil(bytes / 4096)) + 16) AS seen_bytes
    FROM rdma_messages
    GROUP BY ALL
)
SELECT
    s.node,
    s.device,
    s.link_layer,
    s.sent_bytes,
    coalesce(m.seen_bytes, 0)
    + coalesce(u.seen_bytes * s.sent_bytes / nullif(sum(s.sent_bytes) OVER (PARTITION BY s.node), 0), 0) AS seen_bytes
FROM sent AS s
LEFT JOIN seen AS m ON s.node = m.node AND s.device = m.device
LEFT JOIN seen AS u ON s.node = u.node AND u.device IS NULL
ORDER BY s.node, s.device;
