-- _clock_bounds: what the collectives of two nodes say of their clocks, the strongest of each window of the run.
--
-- Inputs: _clock_arrivals, _clock_neighbours, _clock_shifts, _clock_used
-- Output:
--   node           VARCHAR  first node
--   other_node     VARCHAR  second node
--   collectives    BIGINT   how many in the window
--   lower_at_ns    BIGINT   when, on other_node's shifted clock
--   lower_ns       BIGINT   what is added to other_node's times is at least that of node and this
--   upper_at_ns    BIGINT   when
--   upper_ns       BIGINT   and at most this
-- Assumes: times shifted by _clock_shifts, so nodes are within about a second. Of 32 windows by the second node's
--   end; leaving out the weaker constraints of a window can only widen an interval.
CREATE OR REPLACE TEMP TABLE _clock_bounds AS
WITH shifted AS (
    SELECT a.instance_id, a.node, a.say, a.last_arrival_ns + s.shift_ns AS arrival_ns,
        a.first_end_ns + s.shift_ns AS end_ns
    FROM _clock_arrivals AS a JOIN _clock_shifts AS s USING (node)
),
span AS (
    SELECT min(end_ns) AS from_ns, max(end_ns) - min(end_ns) + 1 AS length_ns FROM shifted
),
pairs AS (
    SELECT a.node, b.node AS other_node, (b.end_ns - span.from_ns) * 32::HUGEINT // span.length_ns AS part,
        b.end_ns AS lower_at_ns, a.arrival_ns - b.end_ns AS lower_ns,
        b.arrival_ns AS upper_at_ns, a.end_ns - b.arrival_ns AS upper_ns
    FROM shifted AS a
    JOIN _clock_neighbours AS n ON n.node = a.node
    JOIN _clock_used AS u ON u.node = n.node AND u.other_node = n.other_node
    JOIN shifted AS b ON b.instance_id = a.instance_id AND b.node = n.other_node
    CROSS JOIN span
    WHERE a.say >= u.say
)
SELECT node, other_node, count(*) AS collectives,
    arg_max(lower_at_ns, (lower_ns, lower_at_ns)) AS lower_at_ns, max(lower_ns) AS lower_ns,
    arg_min(upper_at_ns, (upper_ns, upper_at_ns)) AS upper_at_ns, min(upper_ns) AS upper_ns
FROM pairs
GROUP BY node, other_node, part
ORDER BY node, other_node, part;
