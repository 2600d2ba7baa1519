-- _ebpf_bad_rows: lines of a block that begin like a record and are none, as text.
--
-- Inputs: _ebpf_fields, _ebpf_csv_posts, _ebpf_csv_polls, _ebpf_csv_calls, _ebpf_csv_switches
-- Output:
--   raw         VARCHAR  the line; cut to 18 fields where it has more
-- Assumes: asked only where the layouts' rows do not add up to the block's.
CREATE OR REPLACE TEMP VIEW _ebpf_bad_rows AS
WITH known AS (
    SELECT rowid AS line
    FROM _ebpf_fields
    WHERE
        (
            c0 = 'PO' AND c16 IS NOT NULL AND c17 IS NULL AND try_cast(c6 AS BIGINT) IS NOT NULL
            AND _ebpf_int(c16) IS NOT NULL
        )
        OR (c0 = 'PC' AND c12 IS NULL AND c11 IS NOT NULL AND try_cast(c11 AS BIGINT) IS NOT NULL)
        OR (
            c0 = 'PC' AND c11 IS NULL AND try_cast(c10 AS BIGINT) IS NOT NULL AND try_cast(c6 AS UBIGINT) IS NOT NULL
            AND c7 < 4294967296
        )
    UNION ALL
    SELECT line FROM _ebpf_csv_calls
    UNION ALL
    SELECT line FROM _ebpf_csv_switches
)

SELECT concat_ws(',', rtrim(c0, '!'), c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17) AS raw
FROM _ebpf_fields AS f
WHERE NOT EXISTS (FROM known AS k WHERE k.line = f.rowid)
ORDER BY f.rowid;
