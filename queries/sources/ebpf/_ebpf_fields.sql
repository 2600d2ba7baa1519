-- _ebpf_fields: record lines of one block as numbers, in the file's order (rowid).
--
-- Inputs: the block's lines in the file named by the variable ebpf_block_path
-- Output:
--   kind        VARCHAR  two letters
--   n           TINYINT  comma-separated fields of the line
--   v1 to v16   BIGINT   fields; NULL where it is no number. An unsigned 2^64 - x is -x
--   wr_id       UBIGINT  work request id
--   good        BOOLEAN  its layout is known and its numbers are numbers
--   raw         VARCHAR  the line, for a bad one
-- Assumes: everything is text first, so that a bad line costs itself only; there is no quoting. A line with more fields
-- than any record has is cut to 18 fields. Small buffers let threads share a block. Remote addresses are hexadecimal and not read.
CREATE OR REPLACE TEMP TABLE _ebpf_fields AS
WITH lines AS (
    SELECT * FROM read_csv(
        getvariable('ebpf_block_path'),
        columns = {
            'c0': 'VARCHAR', 'c1': 'VARCHAR', 'c2': 'VARCHAR', 'c3': 'VARCHAR', 'c4': 'VARCHAR', 'c5': 'VARCHAR',
            'c6': 'VARCHAR', 'c7': 'VARCHAR', 'c8': 'VARCHAR', 'c9': 'VARCHAR', 'c10': 'VARCHAR', 'c11': 'VARCHAR',
            'c12': 'VARCHAR', 'c13': 'VARCHAR', 'c14': 'VARCHAR', 'c15': 'VARCHAR', 'c16': 'VARCHAR', 'c17': 'VARCHAR'
        },
        auto_detect = false, header = false, delim = ',', quote = '', escape = '', comment = '', nullstr = '\0',
        null_padding = true, strict_mode = false, buffer_size = 4194304, max_line_size = 2097152
    )
),

numbers AS (
    SELECT
        c0 AS kind,
        CASE
            WHEN c17 IS NOT NULL THEN 18 WHEN c16 IS NOT NULL THEN 17 WHEN c13 IS NOT NULL THEN 14
            WHEN c12 IS NOT NULL THEN 13 WHEN c11 IS NOT NULL THEN 12 WHEN c10 IS NOT NULL THEN 11
            WHEN c7 IS NOT NULL THEN 8 WHEN c6 IS NOT NULL THEN 7 WHEN c5 IS NOT NULL THEN 6
            WHEN c4 IS NOT NULL THEN 5 WHEN c3 IS NOT NULL THEN 4 WHEN c2 IS NOT NULL THEN 3 ELSE 2
        END::TINYINT AS n,
        try_cast(c1 AS BIGINT) AS v1,
        try_cast(c2 AS BIGINT) AS v2,
        try_cast(c3 AS BIGINT) AS v3,
        try_cast(c4 AS BIGINT) AS v4,
        try_cast(c5 AS BIGINT) AS v5,
        coalesce(try_cast(c6 AS BIGINT), (try_cast(c6 AS UBIGINT)::HUGEINT - 18446744073709551616)::BIGINT) AS v6,
        coalesce(try_cast(c7 AS BIGINT), (try_cast(c7 AS UBIGINT)::HUGEINT - 18446744073709551616)::BIGINT) AS v7,
        coalesce(try_cast(c8 AS BIGINT), (try_cast(c8 AS UBIGINT)::HUGEINT - 18446744073709551616)::BIGINT) AS v8,
        try_cast(c9 AS BIGINT) AS v9,
        CASE WHEN c0 <> 'PO' THEN try_cast(c10 AS BIGINT) END AS v10,
        CASE
            WHEN c0 <> 'PO'
                THEN coalesce(try_cast(c11 AS BIGINT), (try_cast(c11 AS UBIGINT)::HUGEINT - 18446744073709551616)::BIGINT)
        END AS v11,
        try_cast(c12 AS BIGINT) AS v12,
        try_cast(c14 AS BIGINT) AS v14,
        try_cast(c15 AS BIGINT) AS v15,
        coalesce(try_cast(c16 AS BIGINT), (try_cast(c16 AS UBIGINT)::HUGEINT - 18446744073709551616)::BIGINT) AS v16,
        try_cast(CASE WHEN c0 = 'PO' OR (c0 = 'PC' AND c11 IS NOT NULL) THEN c7 ELSE c6 END AS UBIGINT) AS wr_id,
        c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17
    FROM lines
),

-- An AND of bits is NULL where one of the numbers is, and can't overflow.
checked AS (
    SELECT
        *,
        coalesce(
            v1 >= 0 AND CASE
                WHEN kind = 'PO' AND n = 17
                    THEN v2 >= 0
                    AND (v3 & v4 & v5 & v6 & v8 & v12 & v14 & v15 & v16) IS NOT NULL AND wr_id IS NOT NULL
                WHEN kind = 'PC' AND n = 12 THEN (v2 & v3 & v8 & v9 & v11) IS NOT NULL AND wr_id IS NOT NULL
                WHEN kind = 'WK' AND n = 6 THEN (v2 & v4) IS NOT NULL
                WHEN kind IN ('SI', 'SO') AND n = 5 THEN (v2 & v3 & v4) IS NOT NULL
                WHEN kind = 'HB' AND n = 3 THEN true
                WHEN kind = 'DB' AND n = 5 THEN (v2 & v3 & v4) IS NOT NULL
                WHEN kind = 'PS' AND n = 13
                    THEN (v2 & v3 & v4 & v5 & v7 & v8 & v10 & v12) IS NOT NULL AND wr_id IS NOT NULL
                WHEN kind = 'PX' AND n = 7 THEN (v2 & v3 & v4 & v6) IS NOT NULL
                WHEN kind = 'PC' AND n = 11 THEN (v2 & v3 & v7 & v8 & v10) IS NOT NULL AND wr_id IS NOT NULL
                WHEN kind = 'SI' AND n = 4 THEN (v2 & v3) IS NOT NULL
                WHEN kind = 'PS' AND n = 12 THEN (v2 & v3 & v4 & v5 & v7 & v8 & v9) IS NOT NULL AND wr_id IS NOT NULL
                WHEN kind = 'PX' AND n = 12 THEN (v2 & v3 & v4 & v11) IS NOT NULL
                WHEN kind = 'WK' AND n = 12 THEN (v3 & v5) IS NOT NULL
                WHEN kind = 'SW' AND n = 12 THEN (v2 & v4 & v5 & v7 & v8 & v9) IS NOT NULL
            END,
            false
        ) AS good
    FROM numbers
)

SELECT
    kind, n, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v14, v15, v16, wr_id, good,
    CASE
        WHEN NOT good
            THEN concat_ws(',', c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16, c17)
    END AS raw
FROM checked;
