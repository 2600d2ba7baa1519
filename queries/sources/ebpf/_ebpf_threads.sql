-- _ebpf_threads: process of each thread that has posted or polled, as known so far.
--
-- Inputs: threads_before, posts_in, calls_in, polls_in, switches_in
-- Output:
--   tid         BIGINT
--   pid         BIGINT
--   posts       BOOLEAN  the process has posted
-- Assumes: a thread id that another process takes over belongs to the later one.
CREATE OR REPLACE TEMP TABLE _ebpf_threads AS
WITH seen AS (
    SELECT tid, pid, true AS posts, enter_ns AS at_ns FROM posts_in
    UNION ALL
    SELECT tid, pid, true, at_ns FROM calls_in WHERE kind = 'enter'
    UNION ALL
    SELECT tid, pid, true, at_ns FROM polls_in
    UNION ALL
    SELECT tid, pid, false, at_ns FROM switches_in WHERE pid IS NOT NULL
    UNION ALL
    SELECT tid, pid, posts, -9223372036854775808 FROM threads_before
),

threads AS (
    SELECT tid, max_by(pid, at_ns) AS pid, bool_or(posts) AS posts FROM seen GROUP BY tid
)

SELECT tid, pid, bool_or(posts) OVER (PARTITION BY pid) AS posts FROM threads;
