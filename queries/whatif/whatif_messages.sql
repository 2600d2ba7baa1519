-- whatif_messages: the messages of the replayed operations with the phases of their proxy, in the order of posting.
--
-- Inputs: rdma_messages, whatif_operations, thread_states, fits
-- Output:
--   step         BIGINT   step
--   op           BIGINT   window (whatif_operations)
--   rank         BIGINT   rank
--   node         VARCHAR  node
--   nic          VARCHAR  NIC
--   tid          BIGINT   proxy thread
--   bytes        BIGINT   payload
--   gap_ns       BIGINT   from when the proxy could turn to it until post_send is entered
--   off_cpu_ns   BIGINT   of the gap, runnable but not running
--   post_ns      BIGINT   inside post_send
--   excess_ns    BIGINT   flight beyond wire and base latency, ns
--   chain        BOOLEAN  part of a stop-and-wait chain
--   from_ns      BIGINT   enter_ns less the start of the window
--   done_ns      BIGINT   completion less the start of the window
-- Assumes: a proxy turns to a message when it has posted the one before, in a stop-and-wait chain when it has seen its
--          completion; to the first one when the operation starts. Only what happened around the replayed operations
--          is sorted: the rest of a run is much more.
CREATE OR REPLACE TEMP TABLE whatif_messages AS
WITH base AS (
    SELECT node, nic, min(rtt0_ns) AS rtt0_ns FROM fits WHERE rtt0_ns IS NOT NULL GROUP BY node, nic
),
inside AS (
    SELECT w.step, w.op, w.start_ns, m.*
    FROM (
        FROM rdma_messages
        WHERE
            rank IS NOT NULL AND complete_ns IS NOT NULL
            AND enter_ns >= (SELECT min(start_ns) FROM whatif_operations)
            AND enter_ns < (SELECT max(end_ns) FROM whatif_operations)
    ) AS m
    ASOF JOIN whatif_operations AS w ON m.rank = w.rank AND m.enter_ns >= w.start_ns
    WHERE m.enter_ns < w.end_ns
),
ordered AS (
    SELECT *,
        lag(exit_ns) OVER thread AS exit_before_ns,
        lag(complete_ns) OVER thread AS complete_before_ns
    FROM inside
    WINDOW thread AS (PARTITION BY step, op, rank, tid ORDER BY enter_ns, exit_ns, qp, wr_id, bytes)
),
turned AS (
    SELECT *,
        greatest(
            start_ns,
            coalesce(exit_before_ns, start_ns),
            CASE WHEN chain AND outstanding_at_post = 0 THEN coalesce(complete_before_ns, start_ns) ELSE start_ns END
        ) AS turn_ns
    FROM ordered
),
off_cpu AS (
    SELECT t.step, t.op, t.rank, t.tid, t.enter_ns, sum(least(s.end_ns, t.enter_ns) - greatest(s.start_ns, t.turn_ns))::BIGINT AS ns
    FROM (
        FROM thread_states
        WHERE
            state = 'runnable' AND end_ns > start_ns
            AND end_ns > (SELECT min(start_ns) FROM whatif_operations)
            AND start_ns < (SELECT max(end_ns) FROM whatif_operations)
    ) AS s
    ASOF JOIN turned AS t ON s.node = t.node AND s.tid = t.tid AND s.start_ns <= t.enter_ns
    WHERE s.end_ns > t.turn_ns
    GROUP BY t.step, t.op, t.rank, t.tid, t.enter_ns
)
SELECT
    t.step, t.op, t.rank, t.node, t.nic, t.tid, t.bytes,
    greatest(0, t.enter_ns - t.turn_ns) AS gap_ns,
    least(greatest(0, t.enter_ns - t.turn_ns), coalesce(o.ns, 0)) AS off_cpu_ns,
    t.exit_ns - t.enter_ns AS post_ns,
    greatest(0, coalesce(t.complete_ns - t.service_end_ns - b.rtt0_ns, 0)) AS excess_ns,
    coalesce(t.chain, false) AS chain,
    t.enter_ns - t.start_ns AS from_ns,
    t.complete_ns - t.start_ns AS done_ns
FROM turned AS t
LEFT JOIN base AS b ON t.node IS NOT DISTINCT FROM b.node AND t.nic IS NOT DISTINCT FROM b.nic
LEFT JOIN off_cpu AS o ON t.step = o.step AND t.op = o.op AND t.rank = o.rank AND t.tid = o.tid AND t.enter_ns = o.enter_ns
ORDER BY t.step, t.op, t.rank, t.enter_ns, t.exit_ns, t.qp, t.wr_id, t.bytes;
