-- _wakeups: when each thread was woken.
--
-- Inputs: thread_states
-- Output:
--   node        VARCHAR  node
--   tid         BIGINT   thread
--   at_ns       BIGINT   the wake-up, ns
-- Assumes: a wake-up ends a blocked slice, or begins a runnable one that no running slice leads into (the thread went
--          to sleep before the capture). A runnable slice after a running one is a preemption, not a wake-up.
CREATE OR REPLACE TEMP TABLE _wakeups AS
WITH slices AS (
    SELECT
        node,
        tid,
        start_ns,
        end_ns,
        state,
        lag(state) OVER by_thread AS before_state,
        lag(end_ns) OVER by_thread AS before_end_ns
    FROM thread_states
    WINDOW by_thread AS (PARTITION BY node, tid ORDER BY start_ns, end_ns, state)
)
SELECT DISTINCT node, tid, CASE state WHEN 'blocked' THEN end_ns ELSE start_ns END AS at_ns
FROM slices
WHERE
    (state = 'blocked' AND end_ns IS NOT NULL)
    OR (state = 'runnable' AND NOT coalesce(before_state = 'running' AND before_end_ns = start_ns, false))
ORDER BY node, tid, at_ns;
