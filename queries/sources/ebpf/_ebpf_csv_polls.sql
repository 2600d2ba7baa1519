-- _ebpf_csv_polls: completions: PC with 12 fields, and without the index in its poll with 11.
--
-- Inputs: _ebpf_fields
-- Output: columns of polls_in; line counts those of _ebpf_fields
CREATE OR REPLACE TEMP VIEW _ebpf_csv_polls AS
SELECT
    c1 AS at_ns, c2 AS pid, c3 AS tid, try_cast(c11 AS BIGINT) AS qp, c7 AS wr_id,
    CASE WHEN c8 BETWEEN 2147483648 AND 4294967295 THEN c8 - 4294967296 ELSE c8 END AS status, c9 AS opcode,
    rowid AS line
FROM _ebpf_fields
WHERE c0 = 'PC' AND c12 IS NULL AND try_cast(c11 AS BIGINT) IS NOT NULL
UNION ALL
SELECT c1, c2, c3, try_cast(c10 AS BIGINT), try_cast(c6 AS UBIGINT), try_cast(c7 AS BIGINT), c8, rowid
FROM _ebpf_fields
WHERE
    c0 = 'PC' AND c11 IS NULL AND try_cast(c10 AS BIGINT) IS NOT NULL AND try_cast(c6 AS UBIGINT) IS NOT NULL
    AND c7 < 4294967296;
