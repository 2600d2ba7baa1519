-- _gpu_frames: what kinds of operation are resident on the GPU, for every instant of every step.
--
-- Inputs: gpu_ops, _step_order, losses
-- Output:
--   ordinal     BIGINT   the step, by place in time
--   start_ns    BIGINT   start of the frame
--   end_ns      BIGINT   end; frames tile the steps
--   compute     BOOLEAN  a kernel that is not communication is resident
--   comm        BOOLEAN  a communication kernel is
--   copy        BOOLEAN  a copy or memset is
--   gpu_loss    BOOLEAN  GPU events were lost here
--   launch_ns   BIGINT   start of the launch call of the next operation to start; NULL: there is none;
--                        9223372036854775807: its launch is not in the capture
--   launch_tid  BIGINT   thread of that launch; -1: unknown
-- Assumes: operations of a rank overlap less than a million at a time. One pass over all ends of intervals in
--   falling order of time, so that "the next operation" is the last one seen. The running sum packs a count for
--   each kind into 20 bits. An empty OVER () and frames without ORDER BY stream over the sorted rows; a plan test
--   and the oracle tests hold DuckDB to that. An operation whose end is before its start is left out.
CREATE OR REPLACE TEMP TABLE _gpu_frames AS
WITH operation AS (
    SELECT
        start_ns,
        end_ns,
        CASE op_class WHEN 'compute' THEN 1::BIGINT WHEN 'comm' THEN 1::BIGINT << 20 ELSE 1::BIGINT << 40 END AS code,
        coalesce(launch_start_ns, 9223372036854775807) AS launch_ns,
        coalesce(launch_tid, -1) AS launch_tid
    FROM gpu_ops
    WHERE end_ns >= start_ns
),
lost AS (
    -- Disjoint: each loss counts from where the ones before it end.
    SELECT greatest(start_ns, coalesce(max(end_ns) OVER (
        ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ), start_ns)) AS start_ns, end_ns
    FROM (
        SELECT
            coalesce(l.start_ns, s.start_ns) AS start_ns,
            coalesce(l.end_ns, s.end_ns) AS end_ns
        FROM losses AS l
        CROSS JOIN (SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM _step_order) AS s
        WHERE l.source = 'nsys'
    )
),
step_edge AS (
    -- Below the start of a step lies the one before it. A step without length has no frame.
    SELECT at_ns, min(ordinal) AS ordinal
    FROM (
        SELECT start_ns AS at_ns, ordinal - 1 AS ordinal FROM _step_order
        UNION ALL
        SELECT max(end_ns), max(ordinal) FROM _step_order HAVING count(*) > 0
    )
    GROUP BY at_ns
),
endpoint AS (
    SELECT start_ns AS at_ns, -code AS delta, launch_ns, launch_tid, NULL::BIGINT AS ordinal FROM operation
    UNION ALL
    SELECT end_ns, code, NULL, NULL, NULL FROM operation
    UNION ALL
    SELECT at_ns, 0, NULL, NULL, ordinal FROM step_edge
    UNION ALL
    SELECT start_ns, -(1::BIGINT << 60), NULL, NULL, NULL FROM lost WHERE end_ns > start_ns
    UNION ALL
    SELECT end_ns, 1::BIGINT << 60, NULL, NULL, NULL FROM lost WHERE end_ns > start_ns
),
swept AS (
    SELECT
        at_ns AS end_ns,
        lead(at_ns) OVER () AS start_ns,
        sum(delta) OVER (ROWS UNBOUNDED PRECEDING)::BIGINT AS state,
        last_value(launch_ns IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS launch_ns,
        last_value(launch_tid IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS launch_tid,
        last_value(ordinal IGNORE NULLS) OVER (ROWS UNBOUNDED PRECEDING) AS ordinal
    FROM (FROM endpoint ORDER BY at_ns DESC, launch_ns DESC, launch_tid DESC)
),
frame AS (
    SELECT
        end_ns,
        ordinal,
        launch_ns,
        launch_tid,
        (state & 1048575 > 0)::INTEGER
        + ((state >> 20) & 1048575 > 0)::INTEGER * 2
        + ((state >> 40) & 1048575 > 0)::INTEGER * 4
        + (state >> 60 > 0)::INTEGER * 8 AS kinds
    FROM swept
    WHERE start_ns < end_ns AND ordinal >= 0
),
changed AS (
    SELECT *
    FROM (
        SELECT *, lag(kinds) OVER () AS later_kinds, lag(ordinal) OVER () AS later_ordinal FROM frame
    )
    WHERE kinds & 7 = 0 OR kinds IS DISTINCT FROM later_kinds OR ordinal IS DISTINCT FROM later_ordinal
)
SELECT
    ordinal,
    coalesce(lead(end_ns) OVER (), (SELECT min(start_ns) FROM _step_order)) AS start_ns,
    end_ns,
    kinds & 1 > 0 AS compute,
    kinds & 2 > 0 AS comm,
    kinds & 4 > 0 AS copy,
    kinds & 8 > 0 AS gpu_loss,
    launch_ns,
    launch_tid
FROM changed;
