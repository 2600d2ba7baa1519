-- _profiler_spans: events of the example plugin with their end, and what encloses them.
--
-- Inputs: nccl_events (from _profiler_chrome_events)
-- Output:
--   columns of nccl_events, and
--   end_ns      BIGINT   time of the event's end; NULL where it is missing or 0
--   of_comm, of_seq, of_peer, of_channel, of_trans_bytes, of_steps   of the operation and proxy operation around it
-- Assumes: the plugin prints an event's begin, then what is inside it, then its end; one id and category at a time.
CREATE OR REPLACE TEMP TABLE _profiler_spans AS
WITH ended AS (
    SELECT
        *,
        CASE WHEN lead(ph) OVER same_event = 'e' THEN lead(at_ns) OVER same_event END AS end_ns,
        last_value(CASE WHEN cat IN ('COLL', 'P2P') AND ph = 'b' THEN line END IGNORE NULLS)
            OVER (PARTITION BY pid ORDER BY line ROWS UNBOUNDED PRECEDING) AS op_line,
        last_value(CASE WHEN cat = 'PROXY' AND channel IS NOT NULL AND ph = 'b' THEN line END IGNORE NULLS)
            OVER (PARTITION BY pid ORDER BY line ROWS UNBOUNDED PRECEDING) AS proxy_line
    FROM nccl_events
    WINDOW same_event AS (PARTITION BY pid, cat, name, id ORDER BY line)
)

SELECT
    e.*,
    o.comm_id AS of_comm,
    o.seq AS of_seq,
    p.peer AS of_peer,
    p.channel AS of_channel,
    p.trans_bytes AS of_trans_bytes,
    p.steps AS of_steps
FROM ended AS e
LEFT JOIN nccl_events AS o ON e.op_line = o.line
LEFT JOIN nccl_events AS p ON e.proxy_line = p.line AND e.proxy_line > e.op_line
WHERE e.ph = 'b';
