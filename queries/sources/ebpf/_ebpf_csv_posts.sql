-- _ebpf_csv_posts: calls of post_send in one record: PO with 17 fields.
--
-- Inputs: _ebpf_fields
-- Output: columns of posts_in; line counts those of _ebpf_fields
-- Assumes: flags are those of the chain's last work request, which is the one that completes for all.
CREATE OR REPLACE TEMP VIEW _ebpf_csv_posts AS
SELECT
    c1 AS enter_ns, c2 AS exit_ns, c3 AS pid, c4 AS tid, c5 AS cpu, try_cast(c6 AS BIGINT) AS qp, c7 AS wr_id, c8 AS opcode,
    c14 AS flags, c12 AS n_wr, c15 AS bytes, _ebpf_int(c16) AS ret, rowid AS line
FROM _ebpf_fields
WHERE c0 = 'PO' AND c16 IS NOT NULL AND c17 IS NULL AND try_cast(c6 AS BIGINT) IS NOT NULL AND _ebpf_int(c16) IS NOT NULL;
