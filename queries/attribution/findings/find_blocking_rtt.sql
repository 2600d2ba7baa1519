-- find_blocking_rtt: a sender waits for each message's completion before it posts the next one.
--
-- Inputs: _rank_shares, rdma_messages, fits, run_config, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: of a chain every round trip but the first is avoidable. A chain is a queue pair's, or a thread's that goes round
--          many of them: then its first message on each of the others follows a completion too.
CREATE OR REPLACE TEMP TABLE find_blocking_rtt AS
WITH base AS (
    SELECT node, nic, min(rtt0_ns) AS rtt0_ns FROM fits GROUP BY ALL
),
chained AS (
    SELECT
        m.rank,
        -- Signals without a payload have no fit.
        coalesce(b.rtt0_ns, c.rtt0_ns) AS rtt0_ns,
        row_number() OVER (PARTITION BY m.rank, m.node, m.pid, m.qp, m.step ORDER BY m.enter_ns, m.wr_id) > 1
        OR coalesce(m.enter_ns >= min(m.complete_ns) OVER (PARTITION BY m.rank, m.node, m.pid, m.tid, m.step), false) AS follows
    FROM rdma_messages AS m
    CROSS JOIN run_config AS c
    LEFT JOIN base AS b ON m.node IS NOT DISTINCT FROM b.node AND m.nic IS NOT DISTINCT FROM b.nic
    WHERE m.chain AND m.rank IS NOT NULL
),
avoidable AS (
    SELECT count(*) AS messages, sum(rtt0_ns) FILTER (follows) AS avoidable_ns, quantile_disc(rtt0_ns, 0.5) AS rtt0_ns,
        count(DISTINCT rank) AS ranks
    FROM chained
),
total AS (
    SELECT 100 * sum(blocking_ns) / sum(wall_ns) AS share, arg_max(rank, (blocking_ns / wall_ns, -rank)) AS worst FROM _rank_shares
)
SELECT
    CASE WHEN t.share >= threshold('blocking_rtt', 'critical') THEN 'critical' ELSE 'warning' END AS severity,
    t.worst AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'blocking round trips, % of wall time' AS measure,
    t.share AS value,
    threshold('blocking_rtt', 'share') AS threshold,
    'inferred' AS evidence,
    printf('Stop-and-wait: %d messages on %d ranks were each posted only after the completion of the one before was seen; '
        || 'base round trips%s take %.1f %% of the ' || step_word() || ' (most on rank %d)%s.',
        a.messages, a.ranks, coalesce(printf(' of %.1f µs', a.rtt0_ns / 1e3), ''), t.share, t.worst,
        coalesce(printf(', %.1f ms in all could be pipelined', a.avoidable_ns / 1e6), '')) AS text,
    'excluded: sparse posting (next post within 2 µs of the completion), large messages (wire under half the flight), '
        || 'waits for a wake-up; not excluded: a protocol that needs each answer before the next message' AS confounders,
    'post the signal behind the data on the same queue pair instead of waiting: it is ordered there' AS next
FROM total AS t, avoidable AS a
WHERE t.share >= threshold('blocking_rtt', 'share') AND a.messages > 0;
