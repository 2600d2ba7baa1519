-- _clock_arrivals: of each collective that may speak of clocks, a node's last arrival and first end.
--
-- Inputs: _participants, _operations, ranks, _clock_undo, clock_say, on_run_clock
-- Output:
--   instance_id       BIGINT   collective (_participants)
--   node              VARCHAR  node
--   say               INTEGER  2 surely, 1 where nothing better connects two nodes
--   last_arrival_ns   BIGINT   last arrival on the node, on the node's UTC
--   first_end_ns      BIGINT   first end on the node, on the node's UTC
-- Assumes: a collective says no more than its most doubtful operation. _clock_undo takes back what earlier fits
--   have shifted the node by.
CREATE OR REPLACE TEMP TABLE _clock_arrivals AS
WITH nodes AS (
    SELECT rank, min(node) AS node FROM ranks GROUP BY rank
),
members AS (
    SELECT p.instance_id, n.node, o.start_ns, o.end_ns,
        min(clock_say(o.op, o.kernel, p.basis)) OVER (PARTITION BY p.instance_id) AS say
    FROM _participants AS p
    JOIN _operations AS o USING (rank, op_id)
    JOIN nodes AS n USING (rank)
)
SELECT
    m.instance_id, m.node, any_value(m.say) AS say,
    on_run_clock(max(m.start_ns), any_value(u.offset_ns), any_value(u.at_ns), any_value(u.drift_ppb)) AS last_arrival_ns,
    on_run_clock(min(m.end_ns), any_value(u.offset_ns), any_value(u.at_ns), any_value(u.drift_ppb)) AS first_end_ns
FROM members AS m
JOIN _clock_undo AS u USING (node)
WHERE m.say > 0
GROUP BY m.instance_id, m.node
QUALIFY count(*) OVER (PARTITION BY m.instance_id) > 1
ORDER BY m.instance_id, m.node;
