-- _ebpf_csv_posts: calls of post_send in one record: PO.
--
-- Inputs: _ebpf_fields
-- Output: columns of posts_in
-- Assumes: flags are those of the chain's last work request, which is the one that completes for all.
CREATE OR REPLACE TEMP VIEW _ebpf_csv_posts AS
SELECT
    v1 AS enter_ns, v2 AS exit_ns, v3 AS pid, v4 AS tid, v5 AS cpu, v6 AS qp, wr_id, v8 AS opcode, v14 AS flags,
    v12 AS n_wr, v15 AS bytes, _ebpf_int(v16) AS ret
FROM _ebpf_fields
WHERE good AND kind = 'PO';
