-- _wait_owners: for each instant that a rank waits, the one rank that it is charged on to.
--
-- Inputs: _wait_pieces
-- Output:
--   rank          BIGINT  rank that waits
--   start_ns      BIGINT  start
--   end_ns        BIGINT  end, exclusive; disjoint within a rank
--   culprit_rank  BIGINT  rank that it waits for
-- Assumes: where several operations of a rank wait at once, the window that began first owns the instant (then the
--   lower operation, then the lower culprit). Only pieces that do overlap are cut at each other's ends.
CREATE OR REPLACE TEMP TABLE _wait_owners AS
WITH pieces AS (
    SELECT DISTINCT rank, start_ns, end_ns, window_start_ns, op_id, culprit_rank
    FROM _wait_pieces
    WHERE NOT within_clock_error
),
islands AS (
    SELECT *, sum(fresh::INTEGER) OVER (PARTITION BY rank ORDER BY start_ns, end_ns, window_start_ns, op_id, culprit_rank)
        AS island
    FROM (
        SELECT *, coalesce(start_ns >= max(end_ns) OVER (
            PARTITION BY rank ORDER BY start_ns, end_ns, window_start_ns, op_id, culprit_rank
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), true) AS fresh
        FROM pieces
    )
),
sized AS (
    SELECT *, count(*) OVER (PARTITION BY rank, island) AS n FROM islands
),
edges AS (
    SELECT rank, island, at_ns, lead(at_ns) OVER (PARTITION BY rank, island ORDER BY at_ns) AS next_ns
    FROM (
        SELECT DISTINCT rank, island, unnest([start_ns, end_ns]) AS at_ns FROM sized WHERE n > 1
    )
)
SELECT rank, start_ns, end_ns, culprit_rank FROM sized WHERE n = 1
UNION ALL
SELECT e.rank, e.at_ns, e.next_ns, arg_min(s.culprit_rank, (s.window_start_ns, s.op_id, s.culprit_rank))
FROM edges AS e
JOIN sized AS s ON s.rank = e.rank AND s.island = e.island AND s.start_ns <= e.at_ns AND s.end_ns >= e.next_ns
WHERE e.next_ns IS NOT NULL
GROUP BY e.rank, e.at_ns, e.next_ns
ORDER BY rank, start_ns;
