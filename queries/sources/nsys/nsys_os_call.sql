-- nsys_os_call: rows of os_calls.
--
-- Inputs: nsys_raw_osrt, nsys_string, nsys_rank
-- Output: the columns of os_calls
CREATE OR REPLACE TEMP VIEW nsys_os_call AS
SELECT
    r.rank,
    nsys_tid(c.globalTid) AS tid,
    nsys_at(c.start) AS start_ns,
    nsys_at(c."end") AS end_ns,
    coalesce(s.value, 'unknown') AS name
FROM nsys_raw_osrt AS c
LEFT JOIN nsys_string AS s ON s.id = c.nameId
LEFT JOIN nsys_rank AS r ON r.process = nsys_process(c.globalTid);
