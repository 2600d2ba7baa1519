-- _ebpf_calls: entry, doorbell and return of post_send as separate records, numbered by the call that they belong to.
--
-- Inputs: calls_in, ebpf_block
-- Output:
--   kind, at_ns, line, pid, tid, cpu, qp, wr_id, opcode, flags, n_wr, bytes, ret   as in calls_in
--   call        BIGINT   ordinal of the thread's call in this block; 0: before the thread's first entry
--   whole       BOOLEAN  nothing of the call can still come: it has returned, or another call of the thread followed
-- Assumes: a thread is in one post_send at a time. Records of one thread may come out of order where it changed its
-- core, so whatever is later than the watermark waits for the next block.
CREATE OR REPLACE TEMP TABLE _ebpf_calls AS
WITH numbered AS (
    SELECT
        *,
        count(*) FILTER (WHERE kind = 'enter')
            OVER (PARTITION BY tid ORDER BY at_ns, line ROWS UNBOUNDED PRECEDING) AS call
    FROM calls_in
)

SELECT
    *,
    call > 0
    AND max(at_ns) OVER of_call <= (SELECT watermark_ns FROM ebpf_block)
    AND (
        bool_or(kind = 'exit') OVER of_call
        OR call < max(call) OVER (PARTITION BY tid)
        OR (SELECT final FROM ebpf_block)
    ) AS whole
FROM numbered
WINDOW of_call AS (PARTITION BY tid, call);
