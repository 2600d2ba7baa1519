-- _trace_events: lines of `perf script` or of ftrace's `trace` file as events, in the file's order.
--
-- Inputs: trace_lines(line, text)
-- Output:
--   line        BIGINT   order in the file
--   text        VARCHAR  the line
--   at_ns       BIGINT   time on the trace's clock; NULL where the line is no event
--   name        VARCHAR  thread that was on the core
--   pid         BIGINT   its process; NULL where the line has the thread alone
--   tid, cpu    BIGINT
--   event       VARCHAR  without its subsystem: sched_switch, mlx5_post_send, mlx5_post_send__return
--   args        VARCHAR  what follows
--   lost        BIGINT   events that the line says are lost
--   noise       BOOLEAN  comment, blank, stack frame
-- Assumes: seconds with 6 or 9 decimals. Names may hold spaces: the numbers behind them are what is looked for.
CREATE OR REPLACE TEMP TABLE _trace_events AS
WITH parsed AS (
    SELECT
        line,
        text,
        regexp_extract(
            text,
            '^\s*(.+?)(?:-|\s+)(\d+)(?:/(\d+))?\s+(?:\(\s*(\d+|-+)\)\s+)?\[(\d+)\]\s+(?:[^\s\d]\S{3,6}\s+|\.{4,6}\s+)?(\d+)\.(\d{6,9}):\s+(?:\d+\s+)?(?:[\w.-]+:)?([\w.-]+):\s*(.*)$',
            ['name', 'first_id', 'second_id', 'tgid', 'cpu', 's', 'fraction', 'event', 'args']
        ) AS f,
        try_cast(nullif(regexp_extract(text, '(?i)\blost\s+(\d{1,15})(?:\s+events)?', 1), '') AS BIGINT) AS said_lost
    FROM trace_lines
)

SELECT
    line,
    text,
    try_cast(f.s AS BIGINT) * 1000000000 + try_cast(rpad(f.fraction, 9, '0') AS BIGINT) AS at_ns,
    nullif(f.name, '') AS name,
    CASE WHEN f.second_id <> '' THEN try_cast(f.first_id AS BIGINT) ELSE try_cast(nullif(f.tgid, '') AS BIGINT) END AS pid,
    try_cast(CASE WHEN f.second_id <> '' THEN f.second_id ELSE f.first_id END AS BIGINT) AS tid,
    try_cast(f.cpu AS BIGINT) AS cpu,
    f.event,
    f.args,
    CASE WHEN f.s = '' OR f.event LIKE 'PERF_RECORD_LOST%' THEN said_lost END AS lost,
    text = '' OR regexp_matches(text, '^\s*$|^#|^\s+[0-9a-f]+ ') AS noise
FROM parsed;
