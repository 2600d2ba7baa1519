-- find_host_sync_bound: the GPU idles because the host waits for it before it launches on.
--
-- Inputs: _rank_shares, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_host_sync_bound AS
WITH hit AS (
    SELECT rank, 100 * sync_ns / wall_ns AS share
    FROM _rank_shares
    WHERE 100 * sync_ns / wall_ns >= threshold('host_sync_bound', 'share')
)
SELECT
    'warning' AS severity,
    arg_max(rank, (share, -rank)) AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'GPU idle while the launch thread is in a synchronising call, % of the rank''s wall time' AS measure,
    max(share) AS value,
    threshold('host_sync_bound', 'share') AS threshold,
    'measured_nsys' AS evidence,
    printf('Host synchronisation: on %d of %d ranks the GPU runs dry in synchronising calls, up to %.1f %% of the ' || step_word() || ' on rank %d.',
        count(*), (SELECT count(*) FROM _rank_shares), max(share), arg_max(rank, (share, -rank))) AS text,
    'excluded: synchronising calls while the GPU works (they cost nothing); not excluded: a call that the profiler itself lengthens' AS confounders,
    'remove .item(), .cpu() and explicit synchronisation before dispatch, or launch ahead of it' AS next
FROM hit
HAVING count(*) > 0;
