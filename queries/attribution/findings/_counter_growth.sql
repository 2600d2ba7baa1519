-- _counter_growth: how much each counter of a port grew over the capture.
--
-- Inputs: counters
-- Output:
--   node        VARCHAR  node
--   device      VARCHAR  RDMA device
--   port        BIGINT   port
--   link_layer  VARCHAR  InfiniBand or Ethernet
--   counter     VARCHAR  name as its driver gives it
--   growth      DOUBLE   last reading less the first, in the counter's own unit
-- Assumes: counters of ports only rise; a reset shows as a negative growth, which no detector uses.
CREATE OR REPLACE TEMP TABLE _counter_growth AS
SELECT node, device, port, link_layer, counter, arg_max(value, (at_ns, value)) - arg_min(value, (at_ns, value)) AS growth
FROM counters
WHERE port IS NOT NULL
GROUP BY ALL
HAVING count(*) > 1
ORDER BY ALL;
