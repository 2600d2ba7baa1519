-- _fit_samples: a rank's messages as observations for the fits of alpha, g and beta: single flights, and the spacing
-- of pipelined streams.
--
-- Inputs: rdma_messages, rdma_qps
-- Output:
--   node, nic, peer_class, op, initiator   VARCHAR  path (peer_class 'all' where unknown)
--   step         BIGINT   step it was posted in; NULL: none
--   kind         VARCHAR  alone: nothing of this rank was in flight on the NIC when it was posted, and its thread posted
--                         nothing else until it saw the completion; followed: the thread did; pipelined: a run of messages
--                         each posted before the one before was complete
--   bytes        DOUBLE   payload (of a run: the mean)
--   duration_ns  DOUBLE   from entering post_send to its completion; pipelined: time per message
--   flight_ns    BIGINT   from leaving post_send to its completion; NULL for pipelined
--   weight       DOUBLE   messages that the row stands for
-- Assumes: one rank. A completion is seen when the thread polls, and a thread that posts does not: its flights look
--          longer by a post and a turn of its loop, and large ones more often, which would pass for a slow wire. Of each path, step and quarter octave of size at most about 256 rows are kept, every k-th in order:
--          the sample is the same on every run, and so is the cost of the fit for any number of messages.
CREATE OR REPLACE TEMP TABLE _fit_samples AS
WITH peers AS (
    SELECT node, pid, qp, CASE WHEN count(DISTINCT peer_class) = 1 THEN min(peer_class) END AS peer_class
    FROM rdma_qps
    GROUP BY ALL
),
flights AS (
    SELECT
        m.node,
        m.nic,
        coalesce(p.peer_class, 'all') AS peer_class,
        coalesce(m.opcode_class, 'other') AS op,
        m.step,
        m.bytes,
        m.enter_ns,
        m.exit_ns,
        m.complete_ns,
        m.qp,
        m.pid,
        coalesce(
            max(coalesce(m.released_ns, m.exit_ns)) OVER (
                PARTITION BY m.node, m.nic
                ORDER BY m.enter_ns, m.exit_ns, m.pid, m.qp, m.wr_id
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ) <= m.enter_ns,
            true
        ) AS alone,
        coalesce(
            lead(m.enter_ns) OVER (
                PARTITION BY m.node, m.tid ORDER BY m.enter_ns, m.exit_ns, m.pid, m.qp, m.wr_id
            ) >= m.complete_ns,
            true
        ) AS watched
    FROM rdma_messages AS m
    LEFT JOIN peers AS p
        ON m.node IS NOT DISTINCT FROM p.node AND m.pid IS NOT DISTINCT FROM p.pid AND m.qp IS NOT DISTINCT FROM p.qp
    WHERE coalesce(m.status, 0) = 0 AND m.bytes > 0
),
numbered AS (
    SELECT
        *,
        sum(alone::BIGINT) OVER so_far AS run,
        row_number() OVER so_far AS position
    FROM flights
    WHERE complete_ns IS NOT NULL
    WINDOW so_far AS (
        PARTITION BY node, nic
        ORDER BY enter_ns, exit_ns, pid, qp, complete_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
runs AS (
    SELECT
        node,
        nic,
        min(peer_class) AS peer_class,
        min(op) AS op,
        min(step) AS step,
        'pipelined' AS kind,
        avg(bytes) AS bytes,
        (max(complete_ns) - min(complete_ns)) / (count(*) - 1) AS duration_ns,
        NULL::BIGINT AS flight_ns,
        count(*)::DOUBLE AS weight,
        min(enter_ns) AS at_ns
    FROM numbered
    WHERE NOT alone
    GROUP BY node, nic, run, position // 64
    HAVING
        count(*) >= 8 AND max(complete_ns) > min(complete_ns)
        AND 10 * max(bytes) <= 11 * min(bytes)
        AND count(DISTINCT op) = 1 AND count(DISTINCT peer_class) = 1
),
observed AS (
    SELECT
        node,
        nic,
        peer_class,
        op,
        step,
        CASE WHEN watched THEN 'alone' ELSE 'followed' END AS kind,
        bytes::DOUBLE AS bytes,
        (complete_ns - enter_ns)::DOUBLE AS duration_ns,
        complete_ns - exit_ns AS flight_ns,
        1::DOUBLE AS weight,
        enter_ns AS at_ns
    FROM numbered
    WHERE alone AND complete_ns > enter_ns
    UNION ALL
    SELECT * FROM runs
),
cells AS (
    SELECT
        *,
        row_number() OVER (cell ORDER BY at_ns, bytes, duration_ns) AS ordinal,
        count(*) OVER (cell) AS n
    FROM observed
    WINDOW cell AS (PARTITION BY node, nic, peer_class, op, step, kind, floor(4 * log2(bytes)))
)
SELECT
    node,
    nic,
    peer_class,
    op,
    'cpu' AS initiator,
    step,
    kind,
    bytes,
    duration_ns,
    flight_ns,
    weight * n / (1 + (n - 1) // greatest(1, n // 256)) AS weight
FROM cells
WHERE (ordinal - 1) % greatest(1, n // 256) = 0
ORDER BY node, nic, peer_class, op, kind, step, at_ns, bytes, duration_ns;
