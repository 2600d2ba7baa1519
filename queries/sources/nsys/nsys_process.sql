-- nsys_process: the process of a globalTid or globalPid, as the number that names it inside a capture.
--
-- Arguments: id BIGINT globalTid or globalPid: thread in bits 0-23, pid in 24-47, hardware and VM above
-- Output:
--   BIGINT               the id with its thread bits cleared; negative where the hardware id is large
-- Example: SELECT nsys_process(281487257633500);
CREATE OR REPLACE TEMP MACRO nsys_process(id) AS id & -16777216;
