-- nsys_pid: the operating system's process id in a globalTid or globalPid.
--
-- Arguments: id BIGINT globalTid or globalPid
-- Output:
--   BIGINT               process id on its node
-- Assumes: masked before the shift, since ids can be negative
-- Example: SELECT nsys_pid(281487257633500);
CREATE OR REPLACE TEMP MACRO nsys_pid(id) AS (id & 281474959933440) >> 24;
