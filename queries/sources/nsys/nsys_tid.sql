-- nsys_tid: the operating system's thread id in a globalTid.
--
-- Arguments: id BIGINT globalTid
-- Output:
--   BIGINT               thread id on its node
-- Example: SELECT nsys_tid(281487257633500);
CREATE OR REPLACE TEMP MACRO nsys_tid(id) AS id & 16777215;
