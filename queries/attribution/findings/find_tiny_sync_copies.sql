-- find_tiny_sync_copies: many scalars are read back one by one.
--
-- Inputs: gpu_ops, steps, _counted_steps, breakdown, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_tiny_sync_copies AS
WITH tiny AS (
    SELECT rank, start_ns FROM gpu_ops
    WHERE copy_kind = 'Device-to-Host' AND bytes <= threshold('tiny_sync_copies', 'bytes') AND graph_id IS NULL
),
spans AS (
    SELECT s.rank, s.step, s.start_ns, s.end_ns FROM steps AS s JOIN _counted_steps AS c USING (rank, step)
),
counted AS (
    SELECT s.rank, s.step, count(*) AS n
    FROM tiny AS t
    ASOF JOIN spans AS s ON t.rank = s.rank AND t.start_ns >= s.start_ns
    WHERE t.start_ns < s.end_ns
    GROUP BY ALL
),
idle AS (
    SELECT b.rank, b.step, any_value(c.wall_ns) AS wall_ns,
        sum(b.attributed_ns) FILTER (b.category IN ('host_sync', 'host_launch', 'gpu_dependency')) AS idle_ns
    FROM breakdown AS b
    JOIN _counted_steps AS c ON b.rank = c.rank AND b.step = c.step
    GROUP BY ALL
),
hit AS (
    SELECT c.*, 100 * i.idle_ns / i.wall_ns AS share
    FROM counted AS c
    JOIN idle AS i ON c.rank = i.rank AND c.step = i.step
    WHERE c.n >= threshold('tiny_sync_copies', 'count') AND 100 * i.idle_ns / i.wall_ns >= threshold('tiny_sync_copies', 'share')
)
SELECT
    'warning' AS severity,
    arg_max(rank, (n, -rank, -step)) AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, arg_max(step, (n, -rank, -step)) AS step,
    'device-to-host copies of 4 KiB and less in a step' AS measure,
    max(n) AS value,
    threshold('tiny_sync_copies', 'count') AS threshold,
    'measured_nsys' AS evidence,
    printf('%d tiny copies to the host in ' || step_word() || ' %d of rank %d (rank-' || step_word() || 's like it: %d): the GPU idles %.1f %% of that ' || step_word() || ' around them.',
        max(n), arg_max(step, (n, -rank, -step)), arg_max(rank, (n, -rank, -step)), count(*), arg_max(share, (n, -rank, -step))) AS text,
    'excluded: copies inside graphs, steps whose GPU stays busy; not excluded: idle time with another cause in the same step' AS confounders,
    'read scalars back once a step (stack them), or keep them on the device' AS next
FROM hit
HAVING count(*) > 0;
