-- delay_cost: every wait beyond clock error, charged to what the rank that caused it did meanwhile.
--
-- Inputs: _charged (_charged_waits and every _charged_onwards), _culprit_timeline
-- Output: the columns of the lake table `delay_cost`
-- Assumes: over the instants of a wait, the culprit's own categories get the cost; where it waited itself, the rank
--   that it waited for gets it at the next hop, and so on, at most 64 hops and never a rank twice on one way (then the
--   wait is charged as a wait). Instants at which the culprit has no segment are charged as idle_other: nobody can be
--   asked. So the cost of a victim's step adds up to its waits, to the nanosecond (I6).
-- Example: SELECT culprit_rank, category, sum(delay_ns) FROM delay_cost GROUP BY ALL ORDER BY 3 DESC;
CREATE OR REPLACE TEMP TABLE delay_cost AS
WITH met AS (
    SELECT r.victim_rank, r.step, r.culprit_rank, r.hop, t.category,
        least(r.end_ns, t.end_ns) - greatest(r.start_ns, t.start_ns) AS delay_ns,
        t.next_rank IS NULL OR list_contains(r.path, t.next_rank) OR r.hop >= 63 AS stays
    FROM (
        SELECT c.*, unnest(range(coalesce(a.n, 1), b.n + 1)) AS n
        FROM _charged AS c
        ASOF LEFT JOIN _culprit_timeline AS a ON a.rank = c.culprit_rank AND c.start_ns >= a.start_ns
        ASOF JOIN _culprit_timeline AS b ON b.rank = c.culprit_rank AND c.end_ns > b.start_ns
    ) AS r
    JOIN _culprit_timeline AS t ON t.rank = r.culprit_rank AND t.n = r.n
    WHERE t.end_ns > r.start_ns
),
parts AS (
    SELECT victim_rank, culprit_rank, step, category, hop, delay_ns FROM met WHERE stays
    UNION ALL
    SELECT victim_rank, culprit_rank, step, 'idle_other', hop, end_ns - start_ns FROM _charged
    UNION ALL
    SELECT victim_rank, culprit_rank, step, 'idle_other', hop, -delay_ns FROM met
)
SELECT victim_rank, culprit_rank, step, category, sum(delay_ns)::BIGINT AS delay_ns, hop
FROM parts
GROUP BY victim_rank, culprit_rank, step, category, hop
HAVING sum(delay_ns) > 0
ORDER BY victim_rank, step, culprit_rank, category, hop;
