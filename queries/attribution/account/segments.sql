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
CREATE OR REPLACE TEMP TABLE segments AS
WITH winner AS (
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
SELECT r.rank, o.step, j.start_ns, j.end_ns, s.category, s.evidence
FROM joined AS j
JOIN _step_order AS o USING (ordinal)
JOIN _slots AS s USING (slot)
CROSS JOIN this_rank AS r;
