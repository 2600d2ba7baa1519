-- _clock_end_gaps: how far apart two nodes' clocks seem by the ends of their collectives: a first guess, no bound.
--
-- Inputs: _clock_arrivals, _clock_neighbours
-- Output:
--   node          VARCHAR  first node
--   other_node    VARCHAR  second node
--   say           INTEGER  2 or 1, as _clock_arrivals
--   collectives   BIGINT   how many
--   gap_ns        BIGINT   median of (end on node - end on other_node): about what to add to other_node's times
CREATE OR REPLACE TEMP TABLE _clock_end_gaps AS
SELECT a.node, b.node AS other_node, a.say, count(*) AS collectives,
    quantile_disc(a.first_end_ns - b.first_end_ns, 0.5) AS gap_ns
FROM _clock_arrivals AS a
JOIN _clock_neighbours AS n ON n.node = a.node
JOIN _clock_arrivals AS b ON b.instance_id = a.instance_id AND b.node = n.other_node
GROUP BY a.node, b.node, a.say
ORDER BY a.node, b.node, a.say;
