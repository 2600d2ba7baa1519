-- _rank_shares: the categories that detectors look at, a row a rank; zero where a category has no time.
--
-- Inputs: _typical_time, categories
-- Output:
--   rank         BIGINT  rank
--   wall_ns      BIGINT  wall time of the counted steps, ns
--   blocking_ns  BIGINT  blocking_rtt
--   control_ns   BIGINT  leaves of ctl_cpu, ctl_fetch and ctl_notify
--   exposed_ns   BIGINT  exposed communication in all, waits for peers left out
--   excess_ns    BIGINT  net_excess
--   data_ns      BIGINT  host_data
--   sync_ns      BIGINT  host_sync
CREATE OR REPLACE TEMP TABLE _rank_shares AS
SELECT
    t.rank,
    any_value(t.wall_ns) AS wall_ns,
    coalesce(sum(t.time_ns) FILTER (t.category = 'blocking_rtt'), 0)::BIGINT AS blocking_ns,
    coalesce(sum(t.time_ns) FILTER (starts_with(t.category, 'ctl_')), 0)::BIGINT AS control_ns,
    coalesce(sum(t.time_ns) FILTER (c.comm AND NOT starts_with(t.category, 'wait_')), 0)::BIGINT AS exposed_ns,
    coalesce(sum(t.time_ns) FILTER (t.category = 'net_excess'), 0)::BIGINT AS excess_ns,
    coalesce(sum(t.time_ns) FILTER (t.category = 'host_data'), 0)::BIGINT AS data_ns,
    coalesce(sum(t.time_ns) FILTER (t.category = 'host_sync'), 0)::BIGINT AS sync_ns
FROM _typical_time AS t
JOIN categories AS c ON t.category = c.category
GROUP BY t.rank
ORDER BY t.rank;
