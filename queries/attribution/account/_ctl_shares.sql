-- _ctl_shares: ctl_cpu of each operation and step, divided over its leaves by their occupancy.
--
-- Inputs: _comm_frames, _ctl_windows, _ctl_occupancy, _slots, categories
-- Output:
--   ordinal        BIGINT   the step, by place in time
--   category       VARCHAR  leaf
--   evidence       VARCHAR  of the time divided
--   attributed_ns  BIGINT   its share; over an operation and step the leaves add up to ctl_cpu
--   inclusive_ns   BIGINT   how long the leaf was busy while the operation was open
-- Assumes: occupancy counts in the exposed window without compute and waits: the CPU is one serial resource, and
--   any nanosecond taken out of it is worth the same. Largest remainder; of equal remainders the leaf that comes
--   first in the tree. Time inside a set of disjoint frames is a difference of its running length at two instants:
--   for the many edges of what is busy one pass over them and the frames, in order of time, for the few of windows ASOF.
CREATE OR REPLACE TEMP TABLE _ctl_shares AS
WITH excluded AS (
    SELECT
        bit_or(bit) FILTER (
            category IN ('compute', 'wait_straggler', 'wait_pipeline')
            OR (category = 'trace_gap' AND evidence = 'measured_ebpf')
        ) AS mask
    FROM _slots
),
held AS MATERIALIZED (
    SELECT
        s.evidence,
        f.start_ns,
        f.end_ns - f.start_ns AS length_ns,
        coalesce(sum(f.end_ns - f.start_ns) OVER (
            PARTITION BY s.evidence ORDER BY f.start_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0)::BIGINT AS before_ns
    FROM _comm_frames AS f
    JOIN _slots AS s ON s.bit = f.mask & -f.mask
    WHERE s.category = 'ctl_cpu'
),
window_edge AS (
    SELECT w.window_id, w.ordinal, l.evidence, unnest([-1, 1]) AS sign, unnest([w.start_ns, w.end_ns]) AS at_ns
    FROM _ctl_windows AS w
    CROSS JOIN (SELECT DISTINCT evidence FROM held) AS l
),
to_divide AS (
    SELECT
        e.window_id,
        e.ordinal,
        e.evidence,
        sum(e.sign * (h.before_ns + least(e.at_ns - h.start_ns, h.length_ns)))::BIGINT AS time_ns
    FROM window_edge AS e
    ASOF JOIN held AS h ON e.evidence = h.evidence AND e.at_ns >= h.start_ns
    GROUP BY e.window_id, e.ordinal, e.evidence
),
part AS MATERIALIZED (
    SELECT w.window_id, w.ordinal, w.start_ns, w.end_ns, w.op_ids, c.category AS leaf, row_number() OVER () AS part_no
    FROM _ctl_windows AS w
    CROSS JOIN categories AS c
    WHERE c.leaf_of = 'ctl_cpu' OR c.category = 'ctl_cpu'
),
busy AS (
    SELECT p.part_no, greatest(o.start_ns, p.start_ns) AS start_ns, least(o.end_ns, p.end_ns) AS end_ns
    FROM _ctl_occupancy AS o
    JOIN (SELECT part_no, leaf, start_ns, end_ns, unnest(op_ids) AS op_id FROM part) AS p
        ON p.op_id = o.op_id AND p.leaf = o.leaf AND p.start_ns < o.end_ns AND p.end_ns > o.start_ns
),
-- Edges of what is busy among the exposed frames: of these, what began before, less what of the last one is to come.
passed AS (
    SELECT
        part_no,
        sign,
        sum(length_ns) OVER (ROWS UNBOUNDED PRECEDING)
        - greatest(max(at_ns + length_ns) OVER (ROWS UNBOUNDED PRECEDING) - at_ns, 0) AS exposed_ns
    FROM (
        SELECT NULL AS part_no, NULL AS sign, f.start_ns AS at_ns, f.end_ns - f.start_ns AS length_ns
        FROM _comm_frames AS f
        CROSS JOIN excluded AS e
        WHERE f.mask & e.mask = 0
        UNION ALL
        SELECT part_no, unnest([-1, 1]), unnest([start_ns, end_ns]), 0 FROM busy
        ORDER BY at_ns
    )
),
weighed AS (
    SELECT part_no, sum(sign * exposed_ns)::HUGEINT AS weight FROM passed WHERE part_no IS NOT NULL GROUP BY part_no
),
weight AS (
    SELECT p.window_id, p.ordinal, p.leaf, w.weight FROM weighed AS w JOIN part AS p USING (part_no)
),
divided AS (
    SELECT
        d.window_id,
        d.ordinal,
        d.evidence,
        d.time_ns,
        w.leaf,
        d.time_ns * w.weight // sum(w.weight) OVER part AS floor_ns,
        d.time_ns * w.weight % sum(w.weight) OVER part AS remainder,
        c.place
    FROM to_divide AS d
    JOIN weight AS w USING (window_id, ordinal)
    JOIN categories AS c ON c.category = w.leaf
    WHERE w.weight > 0 AND d.time_ns > 0
    WINDOW part AS (PARTITION BY d.window_id, d.ordinal, d.evidence)
),
share AS (
    SELECT
        ordinal,
        leaf,
        evidence,
        floor_ns + (
            row_number() OVER (part ORDER BY remainder DESC, place)
            <= time_ns - sum(floor_ns) OVER part
        )::INTEGER AS attributed_ns
    FROM divided
    WINDOW part AS (PARTITION BY window_id, ordinal, evidence)
),
attributed AS (
    SELECT ordinal, leaf, evidence, sum(attributed_ns)::BIGINT AS attributed_ns FROM share GROUP BY ALL
),
occupied AS (
    SELECT p.ordinal, p.leaf, sum(b.busy_ns)::BIGINT AS busy_ns
    FROM (SELECT part_no, sum(end_ns - start_ns) AS busy_ns FROM busy GROUP BY part_no) AS b
    JOIN part AS p USING (part_no)
    GROUP BY ALL
)
SELECT
    o.ordinal,
    o.leaf AS category,
    coalesce(a.evidence, c.evidence) AS evidence,
    coalesce(a.attributed_ns, 0) AS attributed_ns,
    greatest(o.busy_ns, coalesce(a.attributed_ns, 0)) AS inclusive_ns
FROM occupied AS o
JOIN categories AS c ON c.category = o.leaf
LEFT JOIN attributed AS a USING (ordinal, leaf);
