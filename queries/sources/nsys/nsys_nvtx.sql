-- nsys_nvtx: rows of nvtx: push/pop ranges, start/end ranges and marks.
--
-- Inputs: nsys_nvtx_event, nsys_domain, nsys_rank
-- Output: the columns of nvtx
-- Assumes: types 59 and 70 are push/pop ranges, 60 and 71 start/end ranges, 34 and 65 marks; a range without an end
--   is open at the end of the capture: end NULL; a mark is an instant
CREATE OR REPLACE TEMP VIEW nsys_nvtx AS
SELECT
    r.rank,
    e.tid::BIGINT AS tid,
    CASE WHEN e.domain_id <> 0 THEN coalesce(d.name, 'domain ' || e.domain_id) END AS "domain",
    CASE WHEN e.event_type IN (59, 70) THEN 'push_pop' WHEN e.event_type IN (60, 71) THEN 'start_end' ELSE 'mark' END
        AS kind,
    nsys_at(e.start_ns) AS start_ns,
    nsys_at(CASE WHEN e.event_type IN (34, 65) THEN e.start_ns ELSE e.end_ns END) AS end_ns,
    e.text,
    e.payload
FROM nsys_nvtx_event AS e
LEFT JOIN nsys_domain AS d ON d.process = e.process AND d.domain_id = e.domain_id
LEFT JOIN nsys_rank AS r ON r.process = e.process
WHERE e.event_type IN (34, 59, 60, 65, 70, 71);
