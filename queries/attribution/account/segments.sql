-- segments: which category and evidence got each instant of each step.
--
-- Inputs: _pieces, _slots, _step_order, this_rank
-- Output:
--   rank      BIGINT         this rank
--   step      BIGINT         step
--   start_ns  BIGINT         start
--   end_ns    BIGINT         end; segments tile the steps, and neighbours in a step differ
--   category  category_name  category, ctl_cpu as a whole
--   evidence  evidence_name  how it is known
-- Assumes: pieces are in order; only projections, filters and windows follow, no joins with several rows, so rows come
--   out in order of start_ns. Names are enumerations: written as text, three times as fast as text.
CREATE OR REPLACE TEMP VIEW segments AS
WITH names AS (
    SELECT
        (SELECT rank FROM this_rank) AS rank,
        (SELECT min(ordinal) FROM _step_order) AS first_ordinal,
        (SELECT list(step ORDER BY ordinal) FROM _step_order) AS steps_in_order,
        (SELECT list(category::category_name ORDER BY slot) FROM _slots) AS categories_in_order,
        (SELECT list(evidence::evidence_name ORDER BY slot) FROM _slots) AS evidence_in_order
),
won AS (
    SELECT ordinal, start_ns, mask & -mask AS bit FROM _pieces
),
changed AS (
    SELECT ordinal, start_ns, bit
    FROM (SELECT *, lag(bit) OVER () AS bit_before, lag(ordinal) OVER () AS ordinal_before FROM won)
    WHERE bit IS DISTINCT FROM bit_before OR ordinal IS DISTINCT FROM ordinal_before
),
joined AS (
    SELECT
        ordinal,
        start_ns,
        coalesce(lead(start_ns) OVER (), (SELECT max(end_ns) FROM _step_order)) AS end_ns,
        bit_count(bit - 1) AS slot
    FROM changed
)
SELECT
    n.rank,
    n.steps_in_order[j.ordinal - n.first_ordinal + 1] AS step,
    j.start_ns,
    j.end_ns,
    n.categories_in_order[j.slot + 1] AS category,
    n.evidence_in_order[j.slot + 1] AS evidence
FROM joined AS j
CROSS JOIN names AS n;
