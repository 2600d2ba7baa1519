-- _step_ranges: the NVTX ranges that are this rank's steps, in order.
--
-- Inputs: nvtx, gpu_ops, cuda_api, run_config (and its patterns as variables)
-- Output:
--   ordinal   BIGINT   place in time, from 0
--   number    BIGINT   number in the range's text; NULL where the pattern gives none
--   start_ns  BIGINT   start of the range, on the CPU
--   end_ns    BIGINT   end of the range; of an unclosed one the next range's start, or the last event
--   closed    BOOLEAN  the capture holds the range's end
-- Assumes: steps are told by one thread: of the threads with matching ranges the one that launched most GPU
--   operations. On it the outermost matching ranges count (a step inside an iteration is a part of it), except a
--   single range of its kind around several others (an epoch, a whole run). Ranges in the domain of a library
--   (NCCL, CUB, TensorRT) are no steps unless run.toml gives the pattern.
CREATE OR REPLACE TEMP TABLE _step_ranges AS
WITH matching AS MATERIALIZED (
    SELECT
        tid,
        start_ns,
        end_ns,
        text,
        CASE
            WHEN getvariable('step_group') > 0
                THEN nullif(regexp_extract(text, getvariable('step_pattern'), getvariable('step_group'), 'i'), '')
        END AS number_text
    FROM nvtx
    WHERE kind IN ('push_pop', 'start_end')
        AND regexp_matches(text, getvariable('step_pattern'), 'i')
        AND NOT regexp_matches(coalesce(domain, ''), getvariable('library_domain_pattern'), 'i')
        AND (end_ns IS NULL OR end_ns >= start_ns)
),
launches AS (
    SELECT launch_tid AS tid, count(*) AS n FROM gpu_ops WHERE launch_tid IS NOT NULL GROUP BY ALL
),
thread AS (
    SELECT max_by(m.tid, (coalesce(l.n, 0), m.n, -m.tid)) AS tid
    FROM (SELECT tid, count(*) AS n FROM matching GROUP BY tid) AS m
    LEFT JOIN launches AS l ON l.tid = m.tid
),
last_event AS (
    SELECT greatest(
        (SELECT max(end_ns) FROM gpu_ops),
        (SELECT max(greatest(start_ns, end_ns)) FROM nvtx),
        (SELECT max(end_ns) FROM cuda_api)
    ) AS at_ns
),
of_thread AS (
    SELECT
        row_number() OVER (ORDER BY start_ns, end_ns DESC NULLS LAST, text) AS id,
        start_ns,
        coalesce(
            end_ns,
            lead(start_ns) OVER (ORDER BY start_ns, end_ns DESC NULLS LAST, text),
            greatest(start_ns, (SELECT at_ns FROM last_event))
        ) AS end_ns,
        end_ns IS NOT NULL AS closed,
        CASE WHEN regexp_full_match(number_text, '\d{1,18}') THEN number_text::BIGINT END AS number,
        replace(text, coalesce(number_text, ''), '#') AS kind_of_range
    FROM matching
    WHERE tid IS NOT DISTINCT FROM (SELECT tid FROM thread)
),
wrappers AS (
    SELECT w.id
    FROM (SELECT * FROM of_thread QUALIFY count(*) OVER (PARTITION BY kind_of_range) = 1) AS w
    JOIN of_thread AS i
        ON i.start_ns >= w.start_ns AND i.end_ns <= w.end_ns AND i.kind_of_range <> w.kind_of_range
    GROUP BY w.id
    HAVING count(*) >= 2
),
outermost AS (
    SELECT *
    FROM of_thread
    WHERE id NOT IN (SELECT id FROM wrappers)
    QUALIFY end_ns > coalesce(
        max(end_ns) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
        start_ns - 1
    )
)
SELECT
    row_number() OVER (ORDER BY id) - 1 AS ordinal,
    number,
    start_ns,
    end_ns,
    closed
FROM outermost;
