-- _coverage_facts: over which ranks the run's cross-rank numbers are computed, for run_facts.
--
-- Inputs: ranks, gpu_ops, captures, log_events, run_config, _participants, _wait_pieces
-- Output:
--   name   VARCHAR  name of the fact
--   value  VARCHAR  its value as text
--   text   VARCHAR  what it means
CREATE OR REPLACE TEMP TABLE _coverage_facts AS
WITH expected AS (
    SELECT coalesce(
        (SELECT expected_ranks FROM run_config),
        (SELECT max(try_cast(regexp_extract(text, '=(\d+)$', 1) AS BIGINT)) FROM log_events WHERE code = 'WORLD_SIZE')
    ) AS n
),
found AS (
    SELECT r.rank, g.rank IS NOT NULL AS usable
    FROM (SELECT DISTINCT rank FROM ranks WHERE rank IS NOT NULL) AS r
    LEFT JOIN (SELECT DISTINCT rank FROM gpu_ops) AS g USING (rank)
),
counted AS (
    SELECT count(*) AS found, count_if(usable) AS usable, list(rank ORDER BY rank) AS ranks,
        string_agg(rank, ', ' ORDER BY rank) FILTER (WHERE NOT usable) AS unusable
    FROM found
),
missing AS (
    SELECT string_agg(e.rank, ', ' ORDER BY e.rank) AS missing
    FROM (SELECT unnest(range(coalesce(n, 0))) AS rank FROM expected) AS e
    ANTI JOIN found USING (rank)
),
matched AS (
    SELECT basis, count(DISTINCT rank) AS ranks, count(DISTINCT instance_id) AS instances FROM _participants GROUP BY basis
)
SELECT 'ranks_found' AS name, found::VARCHAR AS value, 'ranks that a capture names' AS text FROM counted
UNION ALL
SELECT 'ranks_expected', n::VARCHAR, 'ranks of the job, from run.toml or the world size in the captures'
FROM expected WHERE n IS NOT NULL
UNION ALL
SELECT 'ranks_usable', usable::VARCHAR, 'ranks with GPU operations: cross-rank numbers are computed over these'
FROM counted
UNION ALL
SELECT 'ranks_missing', missing, 'expected ranks that no capture names: waits on them are not known, and others are lower bounds'
FROM missing WHERE missing IS NOT NULL
UNION ALL
SELECT 'ranks_unusable', unusable, 'ranks without any GPU operation: left out of waits, which are lower bounds'
FROM counted WHERE unusable IS NOT NULL
UNION ALL
SELECT 'captures_' || status, count(*)::VARCHAR, string_agg(name || coalesce(': ' || reason, ''), '; ' ORDER BY name)
FROM captures WHERE status <> 'ok' GROUP BY status
UNION ALL
SELECT 'collectives_by_' || basis, instances::VARCHAR,
    'collectives matched over ' || ranks || ' ranks by '
    || CASE basis
        WHEN 'communicator' THEN 'communicator and sequence number'
        WHEN 'peer' THEN 'the order of each pair''s messages'
        WHEN 'communicator_order' THEN 'order in their communicator'
        WHEN 'group' THEN 'order in the groups of run.toml'
        WHEN 'run_order' THEN 'order over the run, all sharing an instant'
        ELSE 'order on each node, all sharing an instant'
    END
FROM matched
UNION ALL
SELECT 'waits_over_ranks', count(DISTINCT rank)::VARCHAR, 'ranks that waited for another' FROM _wait_pieces
ORDER BY name;
