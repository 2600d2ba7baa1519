-- _trace_losses: events that a block of a trace says are lost, with the times of the events around the line.
--
-- Inputs: _trace_events
-- Output:
--   before_ns   BIGINT   event before it in the file; NULL: none in this block
--   after_ns    BIGINT   event after it; NULL: none in this block
--   lost_events BIGINT
CREATE OR REPLACE TEMP VIEW _trace_losses AS
WITH around AS (
    SELECT
        line,
        lost,
        last_value(at_ns IGNORE NULLS) OVER (ORDER BY line ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns,
        first_value(at_ns IGNORE NULLS) OVER (ORDER BY line ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS after_ns
    FROM _trace_events
)

SELECT before_ns, after_ns, lost AS lost_events
FROM around
WHERE lost IS NOT NULL
ORDER BY line;
