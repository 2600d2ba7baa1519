-- _shared_nics: NICs that messages of more than one rank went through.
--
-- Inputs: _devices
-- Output:
--   node  VARCHAR  node
--   nic   VARCHAR  device
CREATE OR REPLACE TEMP TABLE _shared_nics AS
SELECT node, nic
FROM _devices
WHERE nic IS NOT NULL AND rank IS NOT NULL
GROUP BY node, nic
HAVING count(DISTINCT rank) > 1
ORDER BY node, nic;
