-- _trace_calls: entries and returns of post_send probes in a trace.
--
-- Inputs: _trace_events
-- Output: columns of calls_in
-- Assumes: a probe's event has post_send in its name, and its return ends in __return, _return, _exit or _ret (`perf
-- probe` writes __return). Arguments that the probe fetches are named qp or qp_num, wr_id, opcode, flags or
-- send_flags, bytes or length, ret or arg1; what it does not fetch stays NULL.
CREATE OR REPLACE TEMP VIEW _trace_calls AS
WITH calls AS (
    SELECT *, regexp_matches(event, '_(?:return|exit|ret)(?:_\d+)?$') AS returns
    FROM _trace_events
    WHERE event LIKE '%post_send%' AND at_ns IS NOT NULL
),

args AS (
    SELECT
        *,
        regexp_extract(args, '\bqp(?:_num)?=(0x[0-9a-fA-F]{1,15}|\d+)', 1) AS qp_text,
        regexp_extract(args, '\bwr_id=(0x[0-9a-fA-F]{1,16}|\d+)', 1) AS wr_id_text,
        regexp_extract(args, '\bopcode=(0x[0-9a-fA-F]{1,15}|\d+)', 1) AS opcode_text,
        regexp_extract(args, '\b(?:send_)?flags=(0x[0-9a-fA-F]{1,15}|\d+)', 1) AS flags_text,
        regexp_extract(args, '\b(?:bytes|length)=(0x[0-9a-fA-F]{1,15}|\d+)', 1) AS bytes_text,
        regexp_extract(args, '\b(?:ret|arg1)=(0x[0-9a-fA-F]{1,15}|-?\d+)', 1) AS ret_text
    FROM calls
)

SELECT
    CASE WHEN returns THEN 'exit' ELSE 'enter' END AS kind,
    at_ns,
    line,
    pid,
    tid,
    cpu,
    try_cast(qp_text AS BIGINT) AS qp,
    try_cast(wr_id_text AS UBIGINT) AS wr_id,
    try_cast(opcode_text AS BIGINT) AS opcode,
    try_cast(flags_text AS BIGINT) AS flags,
    NULL::BIGINT AS n_wr,
    try_cast(bytes_text AS BIGINT) AS bytes,
    CASE WHEN returns THEN CASE WHEN ret_text LIKE '0x%' THEN try_cast(ret_text AS BIGINT) ELSE _ebpf_int(ret_text) END END AS ret
FROM args;
