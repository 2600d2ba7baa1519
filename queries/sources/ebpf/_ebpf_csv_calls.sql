-- _ebpf_csv_calls: entry, doorbell and return of post_send as records of their own: PS, DB, PX of bpftrace and libbpf.
--
-- Inputs: _ebpf_fields, the number of lines before this block in the variable ebpf_line
-- Output: columns of calls_in
-- Assumes: bpftrace's PS says whether a chain follows and not how long it is; libbpf's says nothing of it.
CREATE OR REPLACE TEMP VIEW _ebpf_csv_calls AS
SELECT
    CASE kind WHEN 'PS' THEN 'enter' WHEN 'PX' THEN 'exit' ELSE 'doorbell' END AS kind,
    v1 AS at_ns,
    rowid + getvariable('ebpf_line') AS line,
    v2 AS pid,
    v3 AS tid,
    v4 AS cpu,
    CASE kind WHEN 'PS' THEN v5 END AS qp,
    CASE kind WHEN 'PS' THEN wr_id END AS wr_id,
    CASE kind WHEN 'PS' THEN v7 END AS opcode,
    CASE kind WHEN 'PS' THEN v8 END AS flags,
    CASE WHEN kind = 'PS' AND n = 13 AND v12 = 0 THEN 1::BIGINT END AS n_wr,
    CASE WHEN kind = 'PS' THEN CASE n WHEN 13 THEN v10 ELSE v9 END END AS bytes,
    CASE WHEN kind = 'PX' THEN _ebpf_int(CASE n WHEN 7 THEN v6 ELSE v11 END) END AS ret
FROM _ebpf_fields
WHERE good AND kind IN ('PS', 'PX', 'DB');
