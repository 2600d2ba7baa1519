-- segments: which category and evidence got each instant of each step.
--
-- Inputs: _pieces, _slots, _step_order, this_rank
-- Output:
--   rank      BIGINT   this rank
--   step      BIGINT   step
--   start_ns  BIGINT   start
--   end_ns    BIGINT   end; segments tile the steps, and neighbours in a step differ
--   category  VARCHAR  category, ctl_cpu as a whole
--   evidence  VARCHAR  how it is known
-- Assumes: after the sort only projections, filters and windows follow, no joins with several rows, so rows come out
--   in order of start_ns.
CREATE OR REPLACE TEMP TABLE segments AS
WITH names AS (
    SELECT
        (SELECT rank FROM this_rank) AS rank,
        (SELECT list(step ORDER BY ordinal) FROM _step_order) AS steps_in_order,
        (SELECT list(category ORDER BY slot) FROM _slots) AS categories_in_order,
        (SELECT list(evidence ORDER BY slot) FROM _slots) AS evidence_in_order
),
winner AS (
    SELECT m.mask, s.slot
    FROM (SELECT DISTINCT mask FROM _pieces) AS m
    JOIN _slots AS s ON s.bit = m.mask & -m.mask
),
won AS (
    SELECT p.ordinal, p.start_ns, p.end_ns, w.slot
    FROM _pieces AS p
    JOIN winner AS w USING (mask)
    ORDER BY p.start_ns
),
changed AS (
    SELECT ordinal, start_ns, slot
    FROM (SELECT *, lag(slot) OVER () AS slot_before, lag(ordinal) OVER () AS ordinal_before FROM won)
    WHERE slot IS DISTINCT FROM slot_before OR ordinal IS DISTINCT FROM ordinal_before
),
joined AS (
    SELECT
        ordinal,
        start_ns,
        coalesce(lead(start_ns) OVER (), (SELECT max(end_ns) FROM _step_order)) AS end_ns,
        slot
    FROM changed
)
SELECT
    rank,
    steps_in_order[ordinal + 1] AS step,
    start_ns,
    end_ns,
    categories_in_order[slot + 1] AS category,
    evidence_in_order[slot + 1] AS evidence
FROM joined
CROSS JOIN names;
