-- find_hang: an operation that some ranks entered and that never ended.
--
-- Inputs: comm_ops
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: flight recorders keep started operations without an end; the first open sequence number of a communicator is
--          where it stands, and ranks whose last number is smaller have not arrived.
CREATE OR REPLACE TEMP TABLE find_hang AS
WITH recorded AS (
    SELECT * FROM comm_ops WHERE source = 'flight_recorder' AND seq IS NOT NULL
),
open AS (
    SELECT comm_id, min(seq) AS seq FROM recorded WHERE end_ns IS NULL AND start_ns IS NOT NULL GROUP BY comm_id
),
last AS (
    SELECT comm_id, rank, max(seq) AS seq FROM recorded GROUP BY ALL
),
stands AS (
    SELECT o.comm_id, o.seq,
        (SELECT any_value(r.op ORDER BY r.rank) FROM recorded AS r WHERE r.comm_id IS NOT DISTINCT FROM o.comm_id AND r.seq = o.seq) AS op,
        count(*) FILTER (l.seq >= o.seq) AS arrived,
        list(l.rank ORDER BY l.rank) FILTER (l.seq < o.seq) AS absent
    FROM open AS o
    JOIN last AS l ON l.comm_id IS NOT DISTINCT FROM o.comm_id
    GROUP BY ALL
)
SELECT
    'critical' AS severity,
    absent[1] AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'ranks inside an operation that never ended' AS measure,
    arrived AS value,
    1 AS threshold,
    'measured_profiler' AS evidence,
    printf('Hang: %s, number %d of communicator %s, never ended on %d ranks; %s.', coalesce(op, 'an operation'), seq, coalesce(comm_id, 'unknown'),
        arrived,
        CASE WHEN len(absent) > 0 THEN 'not arrived: rank ' || list_aggregate(absent[1:8], 'string_agg', ', ') || CASE WHEN len(absent) > 8 THEN ' and more' ELSE '' END
            ELSE 'all recorded ranks arrived' END) AS text,
    'excluded: operations that were only scheduled; not excluded: ranks whose recorder wrote nothing (see missing ranks)' AS confounders,
    'look at the stack of the rank that has not arrived' AS next
FROM stands;
