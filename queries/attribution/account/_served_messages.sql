-- _served_messages: messages with their service on the wire and whether they are part of a stop-and-wait chain.
--
-- Inputs: rdma_messages, _links, _wakeups, thread_states, captures
-- Output:
--   the columns of rdma_messages, with
--   service_start_ns    BIGINT   max(exit + fetch, end of the service before on this NIC), ns; NULL: beta unidentified
--   service_end_ns      BIGINT   service_start_ns + ceil(bytes / beta), ns
--   chain               BOOLEAN  part of a stop-and-wait chain; NULL: beta unidentified
--   rtt0_ns             BIGINT   base round trip of its NIC, ns; NULL: unknown
--   fetch_ns            BIGINT   time to fetch a work request, ns; 0 where not given
--   complete_before_ns  BIGINT   completion of the message before on its queue pair, ns
-- Assumes: one rank. FIFO service d_k = max(exit_k + fetch, d_{k-1}) + w_k unrolls to C_k + max_{j<=k}(exit_j + fetch -
--          C_{j-1}), C the running sum of w: two running aggregates, integers throughout. What ended in error may never
--          have been sent: it is not served. The chain's rule is DESIGN's; the time that the thread waited for a core is
--          taken out of the gap between completion and next post, and so is the probe's cost where it was calibrated.
CREATE OR REPLACE TEMP TABLE _served_messages AS
WITH linked AS (
    SELECT
        m.* EXCLUDE (service_start_ns, service_end_ns, chain),
        l.rtt0_ns,
        coalesce(l.fetch_ns, 0) AS fetch_ns,
        CASE
            WHEN coalesce(m.status, 0) = 0 AND m.bytes >= 0
                THEN ((m.bytes::HUGEINT * 1000000000 + l.beta_bytes_per_s - 1) // l.beta_bytes_per_s)::BIGINT
        END AS wire_ns
    FROM rdma_messages AS m
    LEFT JOIN _links AS l ON m.node IS NOT DISTINCT FROM l.node AND m.nic IS NOT DISTINCT FROM l.nic
),
through AS (
    SELECT
        *,
        sum(wire_ns) OVER (
            PARTITION BY node, nic, wire_ns IS NULL
            ORDER BY exit_ns, enter_ns, pid, qp, wr_id, bytes
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )::BIGINT AS through_ns
    FROM linked
),
served AS (
    SELECT
        *,
        through_ns + max(exit_ns + fetch_ns + wire_ns - through_ns) OVER (
            PARTITION BY node, nic, wire_ns IS NULL
            ORDER BY exit_ns, enter_ns, pid, qp, wr_id, bytes
            ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        ) AS service_end_ns
    FROM through
),
in_order AS (
    SELECT
        *,
        lag(complete_ns) OVER queue_pair AS complete_before_ns,
        lag(exit_ns) OVER queue_pair AS exit_before_ns,
        lag(op_id) OVER queue_pair IS NOT DISTINCT FROM op_id
        AND lag(step) OVER queue_pair IS NOT DISTINCT FROM step
        AND lag(enter_ns) OVER queue_pair IS NOT NULL AS same_operation
    FROM served
    WINDOW queue_pair AS (PARTITION BY node, pid, qp ORDER BY enter_ns, exit_ns, tid, wr_id, opcode, bytes)
),
woken AS (
    SELECT
        m.*,
        m.same_operation
        AND coalesce(w.at_ns <= coalesce(m.complete_before_ns, m.exit_before_ns), true) AS follows
    FROM in_order AS m
    ASOF LEFT JOIN _wakeups AS w ON m.node = w.node AND m.tid = w.tid AND m.enter_ns >= w.at_ns
),
runnable AS (
    SELECT
        node,
        tid,
        start_ns,
        end_ns,
        sum(end_ns - start_ns) OVER (
            PARTITION BY node, tid ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
        )::BIGINT - (end_ns - start_ns) AS before_ns
    FROM thread_states
    WHERE state = 'runnable' AND end_ns > start_ns
),
gaps AS (
    SELECT
        m.*,
        m.enter_ns - m.complete_before_ns
        - coalesce(till.before_ns + least(m.enter_ns, till.end_ns) - till.start_ns, 0)
        + coalesce(since.before_ns + least(m.complete_before_ns, since.end_ns) - since.start_ns, 0) AS gap_ns
    FROM woken AS m
    ASOF LEFT JOIN runnable AS till ON m.node = till.node AND m.tid = till.tid AND m.enter_ns >= till.start_ns
    ASOF LEFT JOIN runnable AS since
        ON m.node = since.node AND m.tid = since.tid AND m.complete_before_ns >= since.start_ns
),
members AS (
    SELECT
        *,
        follows OR coalesce(
            lead(follows) OVER (
                PARTITION BY node, pid, qp ORDER BY enter_ns, exit_ns, tid, wr_id, opcode, bytes
            ),
            false
        ) AS member
    FROM gaps
),
probe AS (
    SELECT coalesce(max(probe_cost_ns), 0) AS cost_ns FROM captures
),
chains AS (
    SELECT
        node,
        pid,
        qp,
        step,
        count(*) FILTER (member) >= 8
        AND 10 * count(*) FILTER (member AND outstanding_at_post = 0) >= 9 * count(*) FILTER (member)
        AND 10 * count(*) FILTER (follows AND gap_ns BETWEEN 0 AND 2000 + (SELECT cost_ns FROM probe))
        >= 9 * count(*) FILTER (follows)
        AND 10 * count(*) FILTER (member AND 2 * wire_ns < complete_ns - exit_ns) >= 9 * count(*) FILTER (member)
        AS stop_and_wait,
        count(wire_ns) > 0 AS known
    FROM members
    GROUP BY ALL
)
SELECT
    m.* EXCLUDE (wire_ns, through_ns, exit_before_ns, same_operation, follows, gap_ns, member),
    m.service_end_ns - m.wire_ns AS service_start_ns,
    CASE WHEN c.known THEN m.member AND c.stop_and_wait END AS chain
FROM members AS m
JOIN chains AS c
    ON m.node IS NOT DISTINCT FROM c.node AND m.pid IS NOT DISTINCT FROM c.pid
    AND m.qp IS NOT DISTINCT FROM c.qp AND m.step IS NOT DISTINCT FROM c.step;
