-- _charged_onwards: one hop further: where the charged rank waited itself, the rank that it waited for.
--
-- Inputs: _charged (the hops so far), _culprit_timeline
-- Output: the columns of _charged_waits, of the next hop alone
-- Assumes: run again and again until it is empty (pipeline.attribution.engine): DuckDB 2.0 has no ASOF join inside a
--   recursive query. At most 64 hops, and never a rank twice on one way.
CREATE OR REPLACE TEMP TABLE _charged_onwards AS
SELECT r.victim_rank, r.step, t.next_rank AS culprit_rank, greatest(r.start_ns, t.start_ns) AS start_ns,
    least(r.end_ns, t.end_ns) AS end_ns, r.hop + 1 AS hop, list_append(r.path, t.next_rank) AS path
FROM (
    SELECT c.*, unnest(range(coalesce(a.n, 1), b.n + 1)) AS n
    FROM (FROM _charged WHERE hop = (SELECT max(hop) FROM _charged)) AS c
    ASOF LEFT JOIN _culprit_timeline AS a ON a.rank = c.culprit_rank AND c.start_ns >= a.start_ns
    ASOF JOIN _culprit_timeline AS b ON b.rank = c.culprit_rank AND c.end_ns > b.start_ns
) AS r
JOIN _culprit_timeline AS t ON t.rank = r.culprit_rank AND t.n = r.n
WHERE t.end_ns > r.start_ns
    AND t.next_rank IS NOT NULL AND NOT list_contains(r.path, t.next_rank) AND r.hop < 63;
