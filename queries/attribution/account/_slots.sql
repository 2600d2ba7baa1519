-- _slots: a bit for each category and evidence level that can hold, the first to win lowest.
--
-- Inputs: categories, evidence_levels, _network_candidates, _wait_candidates
-- Output:
--   slot      BIGINT   place in the order of attribution, from 0
--   bit       BIGINT   1 << slot; at most 63 of them
--   category  VARCHAR  category (ctl_cpu as a whole)
--   evidence  VARCHAR  its evidence
--   priority  INTEGER  of the category
--   comm      BOOLEAN  part of communication
--   kin       BIGINT   bits of the category itself and of its parent: these are no rivals of it
CREATE OR REPLACE TEMP TABLE _slots AS
WITH used AS (
    SELECT category, evidence FROM categories WHERE leaf_of IS NULL
    UNION
    SELECT category, evidence FROM _network_candidates
    UNION
    SELECT category, evidence FROM _wait_candidates
    UNION
    -- A loss of GPU events leaves a gap in what Nsight Systems would have told.
    SELECT 'trace_gap', 'measured_nsys'
),
numbered AS (
    SELECT
        row_number() OVER (ORDER BY c.priority, e.strength, u.category) - 1 AS slot,
        u.category,
        u.evidence,
        c.priority,
        c.comm,
        c.parent
    FROM used AS u
    JOIN categories AS c ON c.category = u.category
    JOIN evidence_levels AS e ON e.evidence = u.evidence
    WHERE c.leaf_of IS NULL
)
SELECT
    n.slot,
    1::BIGINT << n.slot AS bit,
    n.category,
    n.evidence,
    n.priority,
    n.comm,
    (
        SELECT bit_or(1::BIGINT << k.slot)
        FROM numbered AS k
        WHERE k.category = n.category OR k.category = n.parent
    ) AS kin
FROM numbered AS n;
