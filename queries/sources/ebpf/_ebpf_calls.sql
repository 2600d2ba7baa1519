-- _ebpf_calls: entry, doorbell and return of post_send as separate records, numbered by the call that they belong to.
--
-- Inputs: calls_in, ebpf_block
-- Output:
--   kind, at_ns, line, pid, tid, cpu, qp, wr_id, opcode, flags, n_wr, bytes, ret   as in calls_in
--   call        BIGINT   ordinal of the call among all threads' in this block; 0: before the thread's first entry
--   whole       BOOLEAN  nothing of the call can still come: it has returned, or another call of the thread followed
-- Assumes: a thread is in one post_send at a time. Records of one thread may come out of order where it changed its
-- core, so whatever is later than the watermark waits for the next block. Windows run as they stream over records in
-- the order of thread and time, and calls are grouped: a partition a call takes ten times as long.
CREATE OR REPLACE TEMP TABLE _ebpf_calls AS
WITH ordered AS (
    SELECT * FROM calls_in ORDER BY tid, at_ns, line
),

entries AS (
    SELECT
        *,
        count(*) FILTER (WHERE kind = 'enter') OVER (ROWS UNBOUNDED PRECEDING) AS entry,
        last_value(CASE WHEN kind = 'enter' THEN tid END IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS entry_tid
    FROM ordered
),

numbered AS (
    SELECT * EXCLUDE (entry, entry_tid), CASE WHEN entry_tid = tid THEN entry ELSE 0 END AS call FROM entries
),

calls AS (
    SELECT tid, call, max(at_ns) AS last_ns, bool_or(kind = 'exit') AS returned FROM numbered GROUP BY tid, call
),

threads AS (
    SELECT tid, max(call) AS last_call FROM calls GROUP BY tid
)

SELECT
    n.*,
    n.call > 0 AND c.last_ns <= b.watermark_ns AND (c.returned OR n.call < t.last_call OR b.final) AS whole
FROM numbered AS n
INNER JOIN calls AS c ON n.tid = c.tid AND n.call = c.call
INNER JOIN threads AS t ON n.tid = t.tid
CROSS JOIN ebpf_block AS b;
