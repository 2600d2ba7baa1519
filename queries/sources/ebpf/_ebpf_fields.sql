-- _ebpf_fields: fields of those record lines of a block that are not read faster, in the file's order (rowid).
--
-- Inputs: the lines, in the file named by the variable ebpf_block_path
-- Output:
--   c0          VARCHAR  kind: two letters; a third, !, behind one with an impossible time or size, which is no record
--   c1 to c17   fields; NULL behind the last one. c17 is not NULL for a line with too many
-- Assumes: whatever is a number in every layout is read as one, which is twice as fast as text and a cast; a line where
-- it is none goes to the table of rejects. Text stay fields that may be hexadecimal (remote addresses) or negative in
-- either form (-11, 2^64 - 11), and field 6, which is a queue pair, a work request or a return value. No quoting. A time from
-- 2^61 ns on (the year 2043, or 73 years after the boot) is none, nor is a message above 1 PiB: sums would overflow.
CREATE OR REPLACE TEMP TABLE _ebpf_fields AS
SELECT * REPLACE (
    CASE
        WHEN
            c1 >= 1::BIGINT << 61
            OR (c0 = 'PO' AND (c2 >= 1::BIGINT << 61 OR c15 > 1::BIGINT << 50))
            OR (c0 = 'PS' AND c9 > 1::BIGINT << 50)
            THEN c0 || '!'
        ELSE c0
    END AS c0
)
FROM read_csv(
    getvariable('ebpf_block_path'),
    columns = {
        'c0': 'VARCHAR', 'c1': 'BIGINT', 'c2': 'BIGINT', 'c3': 'BIGINT', 'c4': 'BIGINT', 'c5': 'BIGINT', 'c6': 'VARCHAR',
        'c7': 'UBIGINT', 'c8': 'BIGINT', 'c9': 'BIGINT', 'c10': 'VARCHAR', 'c11': 'VARCHAR', 'c12': 'BIGINT',
        'c13': 'VARCHAR', 'c14': 'BIGINT', 'c15': 'BIGINT', 'c16': 'VARCHAR', 'c17': 'VARCHAR'
    },
    auto_detect = false, header = false, delim = ',', quote = '', escape = '', comment = '', nullstr = '∅',
    null_padding = true, strict_mode = false, ignore_errors = true, store_rejects = true
);
