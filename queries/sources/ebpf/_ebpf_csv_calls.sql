-- _ebpf_csv_calls: entry, doorbell and return of post_send as records of their own: PS, DB, PX of bpftrace and libbpf.
--
-- Inputs: _ebpf_fields
-- Output: columns of calls_in; line counts those of _ebpf_fields
-- Assumes: bpftrace's PS (13 fields) says whether a chain follows and not how long it is; libbpf's (12) says nothing of
-- it. A PX has 7 or 12 fields, a DB 5.
CREATE OR REPLACE TEMP VIEW _ebpf_csv_calls AS
WITH calls AS (
    SELECT
        CASE c0 WHEN 'PS' THEN 'enter' WHEN 'PX' THEN 'exit' ELSE 'doorbell' END AS kind,
        c1 AS at_ns,
        rowid AS line,
        c2 AS pid,
        c3 AS tid,
        c4 AS cpu,
        CASE c0 WHEN 'PS' THEN c5 END AS qp,
        CASE c0 WHEN 'PS' THEN try_cast(c6 AS UBIGINT) END AS wr_id,
        CASE c0 WHEN 'PS' THEN try_cast(c7 AS BIGINT) END AS opcode,
        CASE c0 WHEN 'PS' THEN c8 END AS flags,
        CASE WHEN c0 = 'PS' AND c12 = 0 THEN 1::BIGINT END AS n_wr,
        CASE WHEN c0 = 'PS' THEN CASE WHEN c12 IS NULL THEN c9 ELSE try_cast(c10 AS BIGINT) END END AS bytes,
        CASE c0 WHEN 'PX' THEN _ebpf_int(CASE WHEN c11 IS NULL THEN c6 ELSE c11 END) END AS ret,
        CASE c0
            WHEN 'PS' THEN c11 IS NOT NULL AND c14 IS NULL
            WHEN 'PX' THEN (c6 IS NOT NULL AND c7 IS NULL) OR (c11 IS NOT NULL AND c12 IS NULL)
            ELSE c4 IS NOT NULL AND c5 IS NULL
        END AS whole
    FROM _ebpf_fields
    WHERE c0 IN ('PS', 'PX', 'DB')
)

SELECT * EXCLUDE (whole)
FROM calls
WHERE
    whole
    AND (kind <> 'enter' OR (wr_id IS NOT NULL AND opcode IS NOT NULL AND bytes IS NOT NULL))
    AND (kind <> 'exit' OR ret IS NOT NULL);
