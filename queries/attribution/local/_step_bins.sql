-- _step_bins: which step's range an instant of the CPU lies in, by bins of time.
--
-- Inputs: _step_ranges
-- Output, a row for each bin that a range touches:
--   ordinal   BIGINT   the range
--   start_ns  BIGINT   start of the range
--   end_ns    BIGINT   its end, or the next one's start if that is earlier
--   bits      INTEGER  bins are 2^bits ns long
--   bin       BIGINT   start_ns >> bits of what lies in it
-- Assumes: a range has some four bins. With them an event's range is found by a hash join, a quarter of the work of
--   ASOF over every event. A table, so that the planner knows how few they are.
CREATE OR REPLACE TEMP TABLE _step_bins AS
WITH stretch AS (
    SELECT ordinal, start_ns, least(end_ns, coalesce(lead(start_ns) OVER (ORDER BY start_ns, ordinal), end_ns)) AS end_ns
    FROM _step_ranges
),
width AS (
    SELECT greatest(0, ceil(log2(sum(end_ns - start_ns) / (4.0 * count(*)))))::INTEGER AS bits
    FROM stretch
    WHERE end_ns > start_ns
)
SELECT s.ordinal, s.start_ns, s.end_ns, w.bits, unnest(range(s.start_ns >> w.bits, ((s.end_ns - 1) >> w.bits) + 1)) AS bin
FROM stretch AS s
CROSS JOIN width AS w
WHERE s.end_ns > s.start_ns;
