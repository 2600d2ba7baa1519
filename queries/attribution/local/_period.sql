-- _period: the kernel name that marks a step of a run without step ranges, and how well it does.
--
-- Inputs: gpu_ops, _step_ranges
-- Output:
--   marker      VARCHAR  kernel name; a step begins at each of its operations
--   confidence  DOUBLE   0 to 1: how alike the periods between its operations are
--   n_periods   BIGINT   whole periods that were compared
-- Assumes: the first 100 000 kernels show the period. A candidate is a name for each number of occurrences, at
--   least 4. Of the names between its first and last occurrence, each agrees by the share of periods that hold its
--   most frequent count (a name that most periods lack does not agree); confidence is the lower of the mean over
--   names and the mean over kernels. A layer is a period of most kernels but of few names: so both. Of the
--   candidates within 0.02 of the best the most frequent wins: two steps are as periodic as one.
CREATE OR REPLACE TEMP TABLE _period AS
WITH kernel AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY start_ns, end_ns, stream, name) AS i, name
    FROM gpu_ops
    WHERE op_class <> 'copy' AND name IS NOT NULL AND NOT EXISTS (FROM _step_ranges)
    ORDER BY start_ns, end_ns, stream, name
    LIMIT 100000
),
occurrences AS (
    SELECT name, count(*) AS n, min(i) AS first_i, max(i) AS last_i FROM kernel GROUP BY name
),
candidate AS (
    SELECT n, min_by(name, first_i) AS marker, min(first_i) AS first_i, min_by(last_i, first_i) AS last_i
    FROM occurrences
    WHERE n >= 4
    GROUP BY n
    ORDER BY count(*) DESC, n
    LIMIT 24
),
in_period AS (
    SELECT
        c.marker,
        k.name,
        sum((k.name = c.marker)::INTEGER) OVER (PARTITION BY c.marker ORDER BY k.i ROWS UNBOUNDED PRECEDING)::BIGINT AS period
    FROM candidate AS c
    JOIN kernel AS k ON k.i >= c.first_i AND k.i < c.last_i
),
counted AS (
    SELECT marker, period, name, count(*) AS n FROM in_period GROUP BY ALL
),
periods AS (
    SELECT marker, max(period) AS n_periods, count(DISTINCT name) AS n_names FROM counted GROUP BY marker
),
by_count AS (
    SELECT marker, name, n, count(*) AS n_agreeing, sum(n) AS n_kernels FROM counted GROUP BY marker, name, n
),
by_name AS (
    SELECT
        b.marker,
        b.name,
        sum(b.n_kernels) AS n_kernels,
        CASE
            WHEN max(b.n_agreeing) >= any_value(p.n_periods) - sum(b.n_agreeing)
                THEN max(b.n_agreeing) / any_value(p.n_periods)
            ELSE 0
        END AS agreement
    FROM by_count AS b
    JOIN periods AS p USING (marker)
    GROUP BY b.marker, b.name
),
scored AS (
    SELECT
        b.marker,
        any_value(p.n_periods) AS n_periods,
        least(avg(b.agreement), sum(b.agreement * b.n_kernels) / sum(b.n_kernels)) AS confidence
    FROM by_name AS b
    JOIN periods AS p USING (marker)
    -- One kernel over and over is no step.
    WHERE p.n_names >= 2
    GROUP BY b.marker
)
SELECT marker, confidence, n_periods
FROM scored
QUALIFY confidence >= max(confidence) OVER () - 0.02
ORDER BY n_periods DESC, marker
LIMIT 1;
