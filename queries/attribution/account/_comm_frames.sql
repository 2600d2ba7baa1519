-- _comm_frames: what holds while a communication kernel is resident, as a mask over _slots.
--
-- Inputs: _gpu_frames, _slots, _network_candidates, _wait_candidates, _operations, _local_operations, losses,
--   _step_order
-- Output:
--   start_ns  BIGINT  start, not before the first step
--   end_ns    BIGINT  end, not behind the last step
--   mask      BIGINT  bits of all categories that hold
-- Assumes: a first pass in order of (slot, time) turns any overlap of a slot's intervals into its on and off
--   instants; the second toggles bits in order of time. Inside a loss of eBPF events nothing is claimed from
--   rdma_transfer to wait_sender: what was seen there is not all there was.
CREATE OR REPLACE TEMP TABLE _comm_frames AS
WITH candidate AS (
    SELECT category, evidence, start_ns, end_ns FROM _network_candidates
    UNION ALL
    SELECT category, evidence, start_ns, end_ns FROM _wait_candidates
    UNION ALL
    SELECT 'nvlink_transfer', 'measured_nsys', start_ns, end_ns
    FROM _operations
    SEMI JOIN _local_operations USING (rank, op_id)
    UNION ALL
    SELECT 'trace_gap', 'measured_ebpf', coalesce(l.start_ns, s.start_ns), coalesce(l.end_ns, s.end_ns)
    FROM losses AS l
    CROSS JOIN (SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM _step_order) AS s
    WHERE l.source = 'ebpf'
),
candidate_endpoint AS (
    SELECT s.slot, unnest([c.start_ns, c.end_ns]) AS at_ns, unnest([1, -1]) AS delta
    FROM candidate AS c
    JOIN _slots AS s USING (category, evidence)
    WHERE c.end_ns > c.start_ns AND EXISTS (FROM _gpu_frames WHERE kinds & 2 > 0)
),
candidate_switch AS (
    SELECT at_ns, 1::BIGINT << slot AS flip
    FROM (
        SELECT slot, at_ns, delta, sum(delta) OVER (ROWS UNBOUNDED PRECEDING) AS depth
        FROM (FROM candidate_endpoint ORDER BY slot, at_ns, delta DESC)
    )
    WHERE (delta = 1 AND depth = 1) OR (delta = -1 AND depth = 0)
),
known AS (
    SELECT
        max(bit) FILTER (category = 'compute') AS compute,
        max(bit) FILTER (category = 'comm_unattributed' AND evidence = 'measured_nsys') AS comm,
        max(bit) FILTER (category = 'memcpy') AS copy,
        max(bit) FILTER (category = 'trace_gap' AND evidence = 'measured_ebpf') AS gap,
        bit_or(bit) FILTER (
            priority >= (SELECT priority FROM categories WHERE category = 'rdma_transfer')
            AND priority <= (SELECT priority FROM categories WHERE category = 'wait_sender')
        ) AS lost
    FROM _slots
),
comm_frame AS (
    SELECT
        f.start_ns,
        f.end_ns,
        k.comm + CASE WHEN f.kinds & 1 > 0 THEN k.compute ELSE 0 END + CASE WHEN f.kinds & 4 > 0 THEN k.copy ELSE 0 END AS flip
    FROM _gpu_frames AS f
    CROSS JOIN known AS k
    WHERE f.kinds & 2 > 0
),
switch AS (
    SELECT start_ns AS at_ns, flip FROM comm_frame
    UNION ALL
    SELECT end_ns, flip FROM comm_frame
    UNION ALL
    SELECT at_ns, flip FROM candidate_switch
),
swept AS (
    SELECT
        at_ns AS start_ns,
        lead(at_ns) OVER () AS end_ns,
        bit_xor(flip) OVER (ROWS UNBOUNDED PRECEDING) AS mask
    FROM (FROM switch ORDER BY at_ns)
)
SELECT
    greatest(s.start_ns, o.start_ns) AS start_ns,
    least(s.end_ns, o.end_ns) AS end_ns,
    CASE WHEN s.mask & k.gap <> 0 THEN s.mask & ~k.lost ELSE s.mask END AS mask
FROM swept AS s
CROSS JOIN known AS k
CROSS JOIN (SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM _step_order) AS o
WHERE s.end_ns > s.start_ns AND s.mask & k.comm <> 0 AND s.end_ns > o.start_ns AND s.start_ns < o.end_ns;
