-- _ebpf_csv_polls: completions: PC, with and without the index in its poll.
--
-- Inputs: _ebpf_fields
-- Output: columns of polls_in
CREATE OR REPLACE TEMP VIEW _ebpf_csv_polls AS
SELECT
    v1 AS at_ns,
    v2 AS pid,
    v3 AS tid,
    CASE n WHEN 12 THEN v11 ELSE v10 END AS qp,
    wr_id,
    _ebpf_int(CASE n WHEN 12 THEN v8 ELSE v7 END) AS status,
    CASE n WHEN 12 THEN v9 ELSE v8 END AS opcode
FROM _ebpf_fields
WHERE good AND kind = 'PC';
