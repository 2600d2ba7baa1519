-- _served_messages: messages with their service on the wire and whether they are part of a stop-and-wait chain.
--
-- Inputs: rdma_messages, _shared_messages, _links, _wakeups, thread_states, captures
-- Output:
--   the columns of rdma_messages, with
--   service_start_ns    BIGINT   max(exit + fetch, end of the service before on this NIC), ns; NULL: beta unidentified
--   service_end_ns      BIGINT   service_start_ns + ceil(bytes / beta), ns
--   chain               BOOLEAN  part of a stop-and-wait chain; NULL: beta unidentified
--   waited_for          BOOLEAN  the same whatever the wire takes of the flight: its sender waits for each completion
--   rtt0_ns             BIGINT   base round trip of its NIC, ns; NULL: unknown
--   fetch_ns            BIGINT   time to fetch a work request, ns; 0 where not given
--   complete_before_ns  BIGINT   completion of the message before on its queue pair, or of its thread in a chain of that, ns
-- Assumes: one rank; messages of others on the same NIC take their turns in its FIFO. FIFO service d_k = max(exit_k + fetch, d_{k-1}) + w_k unrolls to C_k + max_{j<=k}(exit_j + fetch -
--          C_{j-1}), C the running sum of w: two running aggregates, integers throughout. What ended in error may never
--          have been sent: it is not served. The chain's rule is DESIGN's; the time that the thread waited for a core is
--          taken out of the gap between completion and next post, and so is what the probes cost where it was calibrated.
CREATE OR REPLACE TEMP TABLE _served_messages AS
WITH numbered AS MATERIALIZED (
    SELECT row_number() OVER () AS message_id, *
    FROM (
        SELECT
            m.* EXCLUDE (service_start_ns, service_end_ns, chain),
            l.link_no,
            l.rtt0_ns,
            coalesce(l.fetch_ns, 0) AS fetch_ns,
            CASE
                WHEN coalesce(m.status, 0) = 0 AND m.bytes >= 0
                    THEN ((m.bytes::HUGEINT * 1000000000 + l.beta_bytes_per_s - 1) // l.beta_bytes_per_s)::BIGINT
            END AS wire_ns
        FROM rdma_messages AS m
        LEFT JOIN (SELECT *, row_number() OVER (ORDER BY node, nic) AS link_no FROM _links) AS l
            ON m.node IS NOT DISTINCT FROM l.node AND m.nic IS NOT DISTINCT FROM l.nic
        ORDER BY m.enter_ns, m.exit_ns, m.pid, m.tid, m.qp, m.wr_id, m.opcode, m.bytes
    )
),
-- Narrow rows from here on: what is sorted again should be small. message_id is in the order of posting.
on_wire AS (
    SELECT message_id, NULL::BIGINT AS other_rank, link_no, exit_ns, wire_ns, exit_ns + fetch_ns AS arrive_ns
    FROM numbered
    WHERE wire_ns IS NOT NULL
    UNION ALL
    SELECT
        NULL,
        m.rank,
        l.link_no,
        m.exit_ns,
        ((m.bytes::HUGEINT * 1000000000 + l.beta_bytes_per_s - 1) // l.beta_bytes_per_s)::BIGINT,
        m.exit_ns + coalesce(l.fetch_ns, 0)
    FROM _shared_messages AS m
    JOIN (SELECT *, row_number() OVER (ORDER BY node, nic) AS link_no FROM _links) AS l ON m.node = l.node AND m.nic = l.nic
    WHERE l.beta_bytes_per_s IS NOT NULL
),
through AS (
    SELECT *, sum(wire_ns) OVER fifo::BIGINT AS through_ns
    FROM on_wire
    WINDOW fifo AS (
        PARTITION BY link_no ORDER BY exit_ns, other_rank NULLS FIRST, message_id, wire_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
served AS (
    SELECT
        message_id,
        through_ns + max(arrive_ns + wire_ns - through_ns) OVER (
            PARTITION BY link_no ORDER BY exit_ns, other_rank NULLS FIRST, message_id, wire_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS service_end_ns
    FROM through
),
-- A sender may go round its peers and wait for each completion: a chain of its thread, over many queue pairs. Their lane
-- has a negative number in place of a queue pair's. Flights that together last longer than the operation overlap: no need
-- to look closer.
round_robin AS (
    SELECT pid, tid, op_id
    FROM numbered
    WHERE op_id IS NOT NULL
    GROUP BY pid, tid, op_id
    HAVING min(qp) < max(qp) AND sum(complete_ns - enter_ns) <= 1.1 * (max(complete_ns) - min(enter_ns))
),
by_thread AS (
    SELECT
        message_id,
        pid,
        -1 - tid AS qp,
        step,
        tid,
        enter_ns,
        coalesce(max(coalesce(complete_ns, 9223372036854775807)) OVER (
            PARTITION BY pid, tid ORDER BY message_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) <= enter_ns, true) AS idle,
        coalesce(2 * wire_ns < complete_ns - exit_ns, false) AS mostly_flight,
        lag(complete_ns) OVER thread AS complete_before_ns,
        lag(exit_ns) OVER thread AS exit_before_ns,
        lag(message_id) OVER thread IS NOT NULL
        AND lag(op_id) OVER thread IS NOT DISTINCT FROM op_id
        AND lag(step) OVER thread IS NOT DISTINCT FROM step AS same_operation
    FROM numbered
    SEMI JOIN round_robin USING (pid, tid, op_id)
    WINDOW thread AS (PARTITION BY pid, tid ORDER BY message_id)
),
in_order AS MATERIALIZED (
    FROM by_thread
    UNION ALL BY NAME
    SELECT
        message_id,
        pid,
        qp,
        step,
        tid,
        enter_ns,
        outstanding_at_post = 0 AS idle,
        coalesce(2 * wire_ns < complete_ns - exit_ns, false) AS mostly_flight,
        lag(complete_ns) OVER queue_pair AS complete_before_ns,
        lag(exit_ns) OVER queue_pair AS exit_before_ns,
        lag(message_id) OVER queue_pair IS NOT NULL
        AND lag(op_id) OVER queue_pair IS NOT DISTINCT FROM op_id
        AND lag(step) OVER queue_pair IS NOT DISTINCT FROM step AS same_operation
    FROM numbered
    WINDOW queue_pair AS (PARTITION BY pid, qp ORDER BY message_id)
),
-- A chain has eight messages, nine in ten posted with nothing in flight, and at least every second of them follows
-- another in its operation: so at least four do both. Where they don't there is nothing to look up.
candidates AS (
    SELECT pid, qp, step
    FROM in_order
    GROUP BY ALL
    HAVING count(*) >= 8 AND count(*) FILTER (same_operation AND idle) >= 4
),
woken AS (
    SELECT
        m.*,
        m.same_operation AND coalesce(w.at_ns <= coalesce(m.complete_before_ns, m.exit_before_ns), true) AS follows
    FROM in_order AS m
    SEMI JOIN candidates AS c
        ON m.pid IS NOT DISTINCT FROM c.pid AND m.qp IS NOT DISTINCT FROM c.qp AND m.step IS NOT DISTINCT FROM c.step
    ASOF LEFT JOIN _wakeups AS w ON m.tid = w.tid AND m.enter_ns >= w.at_ns
),
runnable AS MATERIALIZED (
    SELECT
        tid,
        start_ns,
        end_ns,
        sum(end_ns - start_ns) OVER (
            PARTITION BY tid ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )::BIGINT - (end_ns - start_ns) AS before_ns
    FROM thread_states
    WHERE state = 'runnable' AND end_ns > start_ns AND EXISTS (FROM candidates)
),
gaps AS (
    SELECT
        m.*,
        m.enter_ns - m.complete_before_ns
        - coalesce(till.before_ns + least(m.enter_ns, till.end_ns) - till.start_ns, 0)
        + coalesce(since.before_ns + least(m.complete_before_ns, since.end_ns) - since.start_ns, 0) AS gap_ns
    FROM woken AS m
    ASOF LEFT JOIN runnable AS till ON m.tid = till.tid AND m.enter_ns >= till.start_ns
    ASOF LEFT JOIN runnable AS since ON m.tid = since.tid AND m.complete_before_ns >= since.start_ns
),
members AS (
    SELECT
        *,
        follows OR coalesce(lead(follows) OVER (PARTITION BY pid, qp, step ORDER BY message_id), false) AS member
    FROM gaps
),
probe AS (
    SELECT coalesce(max(coalesce(probe_call_ns, probe_cost_ns)), 0) AS cost_ns FROM captures
),
chains AS (
    SELECT pid, qp, step, 10 * count(*) FILTER (member AND mostly_flight) >= 9 * count(*) FILTER (member) AS mostly_flight
    FROM members
    GROUP BY pid, qp, step
    HAVING
        count(*) FILTER (member) >= 8
        AND 10 * count(*) FILTER (member AND idle) >= 9 * count(*) FILTER (member)
        AND 10 * count(*) FILTER (follows AND gap_ns BETWEEN 0 AND 2000 + (SELECT cost_ns FROM probe))
        >= 9 * count(*) FILTER (follows)
),
chained AS (
    SELECT m.message_id, bool_or(c.mostly_flight) AS mostly_flight, max(m.complete_before_ns) AS complete_before_ns
    FROM members AS m
    JOIN chains AS c
        ON m.pid IS NOT DISTINCT FROM c.pid AND m.qp IS NOT DISTINCT FROM c.qp AND m.step IS NOT DISTINCT FROM c.step
    WHERE m.member
    GROUP BY m.message_id
)
SELECT
    n.* EXCLUDE (message_id, link_no, wire_ns),
    s.service_end_ns - n.wire_ns AS service_start_ns,
    s.service_end_ns,
    coalesce(c.complete_before_ns, o.complete_before_ns) AS complete_before_ns,
    CASE WHEN n.wire_ns IS NOT NULL THEN coalesce(c.mostly_flight, false) END AS chain,
    c.message_id IS NOT NULL AS waited_for
FROM numbered AS n
JOIN (FROM in_order WHERE qp >= 0 OR qp IS NULL) AS o USING (message_id)
LEFT JOIN served AS s USING (message_id)
LEFT JOIN chained AS c USING (message_id);
