-- delay_cost: every wait beyond clock error, charged to what the rank that caused it did meanwhile.
--
-- Inputs: _wait_pieces, _culprit_timeline
-- Output: the columns of the lake table `delay_cost`
-- Assumes: over the instants of a wait, the culprit's own categories get the cost; where it waited itself, the rank
--   that it waited for gets it at the next hop, and so on, at most 64 hops and never a rank twice on one way (then the
--   wait is charged as a wait). Instants at which the culprit has no segment are charged as idle_other: nobody can be
--   asked. So the cost of a victim's step adds up to its waits, to the nanosecond (I6).
--   Which rows of the culprit's timeline a wait meets is looked up once for each wait and each waiting row, before the
--   recursion: DuckDB has no ASOF join inside one. A part of a waiting row meets some of the row's, so those are tested.
-- Example: SELECT culprit_rank, category, sum(delay_ns) FROM delay_cost GROUP BY ALL ORDER BY 3 DESC;
CREATE OR REPLACE TEMP TABLE delay_cost AS
WITH RECURSIVE asked AS MATERIALIZED (
    SELECT p.rank AS victim_rank, p.step, p.culprit_rank, p.start_ns, p.end_ns, coalesce(a.n, 1) AS first_n,
        coalesce(b.n, 0) AS last_n
    FROM _wait_pieces AS p
    ASOF LEFT JOIN _culprit_timeline AS a ON a.rank = p.culprit_rank AND p.start_ns >= a.start_ns
    ASOF LEFT JOIN _culprit_timeline AS b ON b.rank = p.culprit_rank AND p.end_ns > b.start_ns
    WHERE NOT p.within_clock_error
),
timeline AS MATERIALIZED (
    SELECT t.rank, t.n, t.start_ns, t.end_ns, t.category, t.next_rank, coalesce(a.n, 1) AS next_first_n,
        coalesce(b.n, 0) AS next_last_n
    FROM _culprit_timeline AS t
    ASOF LEFT JOIN _culprit_timeline AS a ON a.rank = t.next_rank AND t.start_ns >= a.start_ns
    ASOF LEFT JOIN _culprit_timeline AS b ON b.rank = t.next_rank AND t.end_ns > b.start_ns
),
charged AS (
    SELECT victim_rank, step, culprit_rank, start_ns, end_ns, first_n, last_n, 0 AS hop, [victim_rank, culprit_rank] AS path
    FROM asked
    UNION ALL
    SELECT r.victim_rank, r.step, t.next_rank, greatest(r.start_ns, t.start_ns), least(r.end_ns, t.end_ns),
        t.next_first_n, t.next_last_n, r.hop + 1, list_append(r.path, t.next_rank)
    FROM (SELECT *, unnest(range(first_n, last_n + 1)) AS n FROM charged) AS r
    JOIN timeline AS t ON t.rank = r.culprit_rank AND t.n = r.n
    WHERE t.end_ns > r.start_ns AND t.start_ns < r.end_ns
        AND t.next_rank IS NOT NULL AND NOT list_contains(r.path, t.next_rank) AND r.hop < 63
),
met AS (
    SELECT r.victim_rank, r.step, r.culprit_rank, r.hop, t.category,
        least(r.end_ns, t.end_ns) - greatest(r.start_ns, t.start_ns) AS delay_ns,
        t.next_rank IS NULL OR list_contains(r.path, t.next_rank) OR r.hop >= 63 AS stays
    FROM (SELECT *, unnest(range(first_n, last_n + 1)) AS n FROM charged) AS r
    JOIN timeline AS t ON t.rank = r.culprit_rank AND t.n = r.n
    WHERE t.end_ns > r.start_ns AND t.start_ns < r.end_ns
),
parts AS (
    SELECT victim_rank, culprit_rank, step, category, hop, delay_ns FROM met WHERE stays
    UNION ALL
    SELECT victim_rank, culprit_rank, step, 'idle_other', hop, end_ns - start_ns FROM charged
    UNION ALL
    SELECT victim_rank, culprit_rank, step, 'idle_other', hop, -delay_ns FROM met
)
SELECT victim_rank, culprit_rank, step, category, sum(delay_ns)::BIGINT AS delay_ns, hop
FROM parts
GROUP BY victim_rank, culprit_rank, step, category, hop
HAVING sum(delay_ns) > 0
ORDER BY victim_rank, step, culprit_rank, category, hop;
