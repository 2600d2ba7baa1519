-- _culprit_timeline: what every rank did while any rank waited, and for whom it waited itself.
--
-- Inputs: segments, _wait_pieces, _wait_owners
-- Output:
--   rank       BIGINT   rank
--   n          BIGINT   counts the rank's rows from 1, by start
--   start_ns   BIGINT   start
--   end_ns     BIGINT   end, exclusive; disjoint within a rank
--   category   VARCHAR  its category then
--   next_rank  BIGINT   rank that it waited for; NULL where it did not wait
-- Assumes: only segments that touch an instant at which some rank waits: all others can't be charged. A waiting
--   segment is cut by who owns it; where owners do not cover it, it is charged as it is.
CREATE OR REPLACE TEMP TABLE _culprit_timeline AS
WITH waiting AS (
    SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM (
        SELECT *, sum(fresh::INTEGER) OVER (ORDER BY start_ns, end_ns) AS island
        FROM (
            SELECT start_ns, end_ns, coalesce(start_ns > max(end_ns) OVER (
                ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), true) AS fresh
            FROM (SELECT DISTINCT start_ns, end_ns FROM _wait_pieces WHERE NOT within_clock_error)
        )
    )
    GROUP BY island
),
touched AS (
    SELECT s.rank, s.start_ns, s.end_ns, s.category
    FROM segments AS s
    ASOF JOIN waiting AS w ON s.end_ns > w.start_ns
    WHERE w.end_ns > s.start_ns
),
owned AS (
    SELECT t.rank, t.start_ns AS segment_ns, t.end_ns - t.start_ns AS length_ns, t.category,
        o.start_ns, o.end_ns, o.culprit_rank
    FROM _wait_owners AS o
    ASOF JOIN (SELECT * FROM touched WHERE category LIKE 'wait\_%' ESCAPE '\') AS t
        ON t.rank = o.rank AND o.start_ns >= t.start_ns
    WHERE o.end_ns <= t.end_ns
),
covered AS (
    SELECT *, sum(end_ns - start_ns) OVER (PARTITION BY rank, segment_ns) = length_ns AS whole FROM owned
),
pieces AS (
    SELECT rank, start_ns, end_ns, category, culprit_rank AS next_rank FROM covered WHERE whole
    UNION ALL
    SELECT t.rank, t.start_ns, t.end_ns, t.category, NULL
    FROM touched AS t
    ANTI JOIN (SELECT DISTINCT rank, segment_ns FROM covered WHERE whole) AS c
        ON c.rank = t.rank AND c.segment_ns = t.start_ns
)
SELECT rank, row_number() OVER (PARTITION BY rank ORDER BY start_ns) AS n, start_ns, end_ns, category, next_rank
FROM pieces
ORDER BY rank, n;
