-- coverage: over which ranks a run's cross-rank numbers are computed, and what is missing.
--
-- Inputs: ranks, gpu_ops, captures, waits, steps, clock_offsets, run_facts
-- Output:
--   run                 VARCHAR    run
--   expected_ranks      BIGINT     ranks of the job, from run.toml or WORLD_SIZE; NULL where nobody says
--   found_ranks         BIGINT     ranks that a capture names
--   usable_ranks        BIGINT     ranks with any GPU operation
--   missing_ranks       BIGINT[]   expected, in no capture
--   unusable_ranks      BIGINT[]   named by a capture, without any GPU operation
--   partial_ranks       BIGINT[]   ranks with a step that is not complete beside its first and last
--   waiting_ranks       BIGINT     ranks that have any wait
--   unaligned_nodes     VARCHAR[]  nodes without a common clock: waits across them are not known
--   captures            BIGINT     input files
--   partial_captures    VARCHAR[]  names of those that are partial
--   unusable_captures   VARCHAR[]  names of those that could not be used
-- Example: SELECT expected_ranks, usable_ranks, missing_ranks FROM coverage;
CREATE OR REPLACE VIEW coverage AS
WITH runs AS (
    SELECT DISTINCT run FROM captures UNION SELECT DISTINCT run FROM ranks
),
known AS (
    SELECT r.run, r.rank, g.rank IS NOT NULL AS usable
    FROM (SELECT DISTINCT run, rank FROM ranks WHERE rank IS NOT NULL) AS r
    LEFT JOIN (SELECT DISTINCT run, rank FROM gpu_ops) AS g USING (run, rank)
),
found AS (
    SELECT run, count(*) AS found_ranks, count_if(usable)::BIGINT AS usable_ranks, list(rank ORDER BY rank) AS all_ranks,
        list(rank ORDER BY rank) FILTER (WHERE NOT usable) AS unusable_ranks
    FROM known
    GROUP BY run
),
expected AS (
    SELECT run, max(try_cast(value AS BIGINT)) AS expected_ranks FROM run_facts WHERE name = 'ranks_expected' GROUP BY run
),
broken AS (
    SELECT run, list(DISTINCT rank ORDER BY rank) AS partial_ranks
    FROM (
        SELECT run, rank, complete,
            row_number() OVER (PARTITION BY run, rank ORDER BY start_ns, step) AS k,
            count(*) OVER (PARTITION BY run, rank) AS n
        FROM steps
    )
    WHERE NOT complete AND k > 1 AND k < n
    GROUP BY run
),
files AS (
    SELECT run, count(*) AS captures,
        list(name ORDER BY name) FILTER (WHERE status = 'partial') AS partial_captures,
        list(name ORDER BY name) FILTER (WHERE status = 'unusable') AS unusable_captures
    FROM captures
    GROUP BY run
)
SELECT r.run, e.expected_ranks, coalesce(f.found_ranks, 0) AS found_ranks, coalesce(f.usable_ranks, 0) AS usable_ranks,
    CASE WHEN e.expected_ranks IS NOT NULL
        THEN list_filter(range(e.expected_ranks), lambda rank: NOT list_contains(coalesce(f.all_ranks, []), rank))
    END AS missing_ranks,
    coalesce(f.unusable_ranks, []) AS unusable_ranks,
    coalesce(b.partial_ranks, []) AS partial_ranks,
    (SELECT count(DISTINCT w.rank) FROM waits AS w WHERE w.run = r.run) AS waiting_ranks,
    coalesce((SELECT list(c.node ORDER BY c.node) FROM clock_offsets AS c WHERE c.run = r.run AND c.status = 'unaligned'), [])
        AS unaligned_nodes,
    coalesce(x.captures, 0) AS captures,
    coalesce(x.partial_captures, []) AS partial_captures,
    coalesce(x.unusable_captures, []) AS unusable_captures
FROM runs AS r
LEFT JOIN found AS f USING (run)
LEFT JOIN expected AS e USING (run)
LEFT JOIN broken AS b USING (run)
LEFT JOIN files AS x USING (run)
ORDER BY r.run;
