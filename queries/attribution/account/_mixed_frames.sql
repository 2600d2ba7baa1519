-- _mixed_frames: what kinds of operation are resident in busy periods of the GPU where that changes.
--
-- Inputs: gpu_ops, _mixed_periods
-- Output:
--   start_ns  BIGINT    start of the frame
--   end_ns    BIGINT    end; frames tile those busy periods
--   kinds     UTINYINT  1 compute + 2 communication + 4 copy or memset
-- Assumes: operations of a rank overlap less than a million at a time: the running sum packs a count for each kind
--   into 20 bits.
CREATE OR REPLACE TEMP TABLE _mixed_frames AS
WITH operation AS (
    SELECT
        o.start_ns,
        o.end_ns,
        CASE o.op_class WHEN 'compute' THEN 1::BIGINT WHEN 'comm' THEN 1::BIGINT << 20 ELSE 1::BIGINT << 40 END AS code
    FROM (FROM gpu_ops WHERE end_ns > start_ns) AS o
    ASOF JOIN _mixed_periods AS p ON o.start_ns >= p.start_ns
    WHERE o.start_ns < p.end_ns
),
endpoint AS (
    SELECT start_ns AS at_ns, code AS delta FROM operation
    UNION ALL
    SELECT end_ns, -code FROM operation
),
swept AS (
    SELECT
        at_ns AS start_ns,
        lead(at_ns) OVER () AS end_ns,
        sum(delta) OVER (ROWS UNBOUNDED PRECEDING)::BIGINT AS state
    FROM (FROM endpoint ORDER BY at_ns)
),
frame AS (
    SELECT
        start_ns,
        (
            (state & 1048575 > 0)::INTEGER
            + ((state >> 20) & 1048575 > 0)::INTEGER * 2
            + (state >> 40 > 0)::INTEGER * 4
        )::UTINYINT AS kinds
    FROM swept
    WHERE end_ns IS NULL OR end_ns > start_ns
),
changed AS (
    SELECT *
    FROM (SELECT *, lag(kinds) OVER () AS kinds_before FROM frame)
    WHERE kinds IS DISTINCT FROM kinds_before
),
joined AS (
    SELECT start_ns, lead(start_ns) OVER () AS end_ns, kinds FROM changed
)
SELECT start_ns, end_ns, kinds FROM joined WHERE kinds <> 0;
