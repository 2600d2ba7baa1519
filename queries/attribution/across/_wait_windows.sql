-- _wait_windows: when a rank's operation waits for a peer, before compute is taken out.
--
-- Inputs: _operations, _participants, _message_spans, ranks, clock_pairs, losses, comm_phases
-- Output:
--   rank                BIGINT   rank that waits
--   op_id               BIGINT   its operation (_operations); NULL for a credit outside every operation
--   comm_id             VARCHAR  communicator
--   seq                 BIGINT   sequence number in the communicator
--   op                  VARCHAR  operation
--   culprit_rank        BIGINT   rank that is waited for
--   kind                VARCHAR  straggler, pipeline, sender or credit
--   start_ns            BIGINT   start
--   end_ns              BIGINT   end, exclusive
--   clock_error_ns      BIGINT   bound of the error between the two ranks' clocks
--   within_clock_error  BOOLEAN  the peer's lateness can't be told from clock error
-- Assumes: arrival a = the operation's start. A rank waits [a, min(A, end)), A the latest arrival that is later
--   than a by more than the error of that pair: 0 on one node, none (no wait) where a node is unaligned.
--   Later arrivals within the error give a row of their own. The last arrival of all decides for nearly every
--   rank; only where it does not are the nodes' last arrivals compared one by one, so the work stays linear.
--   A sender is waited for from when the rank's own messages of the operation are complete (its arrival without
--   any) until the last message of another participant is, to this rank where peers are known; only on nodes
--   whose messages were seen, and not inside a loss there.
CREATE OR REPLACE TEMP TABLE _wait_windows AS
WITH nodes AS (
    SELECT rank, min(node) AS node FROM ranks GROUP BY rank
),
arrivals AS (
    SELECT p.instance_id, p.basis, o.rank, n.node, o.op_id, o.start_ns, o.end_ns
    FROM _participants AS p
    JOIN _operations AS o USING (rank, op_id)
    JOIN nodes AS n USING (rank)
),
last_on_node AS (
    SELECT instance_id, node, max(start_ns) AS start_ns, arg_max(rank, (start_ns, -rank)) AS rank
    FROM arrivals
    GROUP BY ALL
),
last_of_all AS (
    SELECT instance_id, max(start_ns) AS start_ns, arg_max(rank, (start_ns, -rank)) AS rank,
        arg_max(node, (start_ns, -rank)) AS node
    FROM last_on_node
    GROUP BY instance_id
),
against_last AS (
    SELECT a.*, l.rank AS culprit_rank, l.start_ns AS culprit_start_ns,
        CASE WHEN l.node = a.node THEN 0 ELSE c.error_ns END AS clock_error_ns
    FROM arrivals AS a
    JOIN last_of_all AS l USING (instance_id)
    LEFT JOIN clock_pairs AS c
        ON c.node = a.node AND c.other_node = l.node AND a.start_ns >= c.start_ns AND a.start_ns < c.end_ns
),
decided AS (
    SELECT *, true AS beyond
    FROM against_last
    WHERE culprit_start_ns - start_ns > clock_error_ns
),
later_nodes AS (
    SELECT a.* EXCLUDE (culprit_rank, culprit_start_ns, clock_error_ns),
        l.rank AS culprit_rank, l.start_ns AS culprit_start_ns,
        CASE WHEN l.node = a.node THEN 0 ELSE c.error_ns END AS clock_error_ns
    FROM against_last AS a
    JOIN last_on_node AS l ON l.instance_id = a.instance_id AND l.start_ns > a.start_ns
    LEFT JOIN clock_pairs AS c
        ON c.node = a.node AND c.other_node = l.node AND a.start_ns >= c.start_ns AND a.start_ns < c.end_ns
    WHERE (a.culprit_start_ns - a.start_ns > a.clock_error_ns) IS NOT TRUE
),
undecided AS (
    SELECT *, culprit_start_ns - start_ns > clock_error_ns AS beyond
    FROM later_nodes
    WHERE clock_error_ns IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY rank, op_id, culprit_start_ns - start_ns > clock_error_ns
        ORDER BY culprit_start_ns DESC, culprit_rank
    ) = 1
),
late AS (
    SELECT * FROM decided UNION ALL BY NAME SELECT * FROM undecided
),
-- What lies within the error begins where what lies beyond it ends.
arrival_windows AS (
    SELECT rank, op_id, culprit_rank, CASE WHEN basis = 'peer' THEN 'pipeline' ELSE 'straggler' END AS kind,
        CASE
            WHEN beyond THEN start_ns
            ELSE greatest(start_ns, coalesce(max(culprit_start_ns) FILTER (WHERE beyond) OVER one, start_ns))
        END AS start_ns,
        least(culprit_start_ns, end_ns) AS end_ns,
        clock_error_ns, NOT beyond AS within_clock_error
    FROM late
    WINDOW one AS (PARTITION BY rank, op_id)
),
observed_nodes AS (
    SELECT DISTINCT n.node FROM _message_spans JOIN nodes AS n USING (rank)
),
receivers AS (
    SELECT a.instance_id, a.rank, a.node, a.op_id, a.end_ns,
        greatest(a.start_ns, coalesce(max(s.last_complete_ns), a.start_ns)) AS start_ns
    FROM arrivals AS a
    SEMI JOIN observed_nodes USING (node)
    LEFT JOIN _message_spans AS s USING (rank, op_id)
    GROUP BY a.instance_id, a.rank, a.node, a.op_id, a.end_ns, a.start_ns
),
senders AS (
    SELECT a.instance_id, a.rank, a.node, s.peer_rank, max(s.last_complete_ns) AS last_complete_ns
    FROM arrivals AS a JOIN _message_spans AS s USING (rank, op_id)
    WHERE s.last_complete_ns IS NOT NULL
    GROUP BY ALL
),
to_anyone AS (
    -- The last two: a rank is not its own sender.
    SELECT *
    FROM senders
    WHERE peer_rank IS NULL
    QUALIFY row_number() OVER (PARTITION BY instance_id ORDER BY last_complete_ns DESC, rank) <= 2
),
sender_pairs AS (
    SELECT r.*, s.rank AS culprit_rank, s.node AS culprit_node, s.last_complete_ns
    FROM receivers AS r JOIN to_anyone AS s ON s.instance_id = r.instance_id AND s.rank <> r.rank
    UNION ALL
    SELECT r.*, s.rank, s.node, s.last_complete_ns
    FROM receivers AS r
    JOIN senders AS s ON s.instance_id = r.instance_id AND s.peer_rank = r.rank AND s.rank <> r.rank
),
sender_windows AS (
    SELECT p.rank, p.op_id, p.node, p.culprit_rank, p.start_ns, least(p.last_complete_ns, p.end_ns) AS end_ns,
        CASE WHEN p.culprit_node = p.node THEN 0 ELSE c.error_ns END AS clock_error_ns,
        p.last_complete_ns - p.start_ns
            <= CASE WHEN p.culprit_node = p.node THEN 0 ELSE c.error_ns END AS within_clock_error
    FROM sender_pairs AS p
    LEFT JOIN clock_pairs AS c
        ON c.node = p.node AND c.other_node = p.culprit_node
        AND p.start_ns >= c.start_ns AND p.start_ns < c.end_ns
    WHERE p.culprit_node = p.node OR c.error_ns IS NOT NULL
    QUALIFY row_number() OVER (
        PARTITION BY p.rank, p.op_id ORDER BY p.last_complete_ns DESC, p.culprit_rank
    ) = 1
),
blind AS (
    -- Losses of a node, merged.
    SELECT node, min(start_ns) AS start_ns, max(end_ns) AS end_ns
    FROM (
        SELECT *, sum(fresh::INTEGER) OVER (PARTITION BY node ORDER BY start_ns, end_ns) AS island
        FROM (
            SELECT node, start_ns, end_ns,
                coalesce(start_ns > max(end_ns) OVER (
                    PARTITION BY node ORDER BY start_ns, end_ns ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ), true) AS fresh
            FROM losses
            WHERE source = 'ebpf' AND end_ns > start_ns
        )
    )
    GROUP BY node, island
),
sender_cuts AS (
    -- Sight begins where the window begins or a loss ends, and lasts to the next loss or the window's end.
    SELECT rank, op_id, node, culprit_rank, start_ns, end_ns, clock_error_ns, within_clock_error, start_ns AS from_ns
    FROM sender_windows
    UNION ALL
    SELECT w.rank, w.op_id, w.node, w.culprit_rank, w.start_ns, w.end_ns, w.clock_error_ns, w.within_clock_error,
        b.end_ns
    FROM sender_windows AS w
    JOIN blind AS b ON b.node = w.node AND b.end_ns > w.start_ns AND b.end_ns < w.end_ns
),
seen_windows AS (
    SELECT s.rank, s.op_id, s.culprit_rank, 'sender' AS kind, s.from_ns AS start_ns,
        least(s.end_ns, coalesce(min(b.start_ns), s.end_ns)) AS end_ns, s.clock_error_ns, s.within_clock_error
    FROM sender_cuts AS s
    LEFT JOIN blind AS b ON b.node = s.node AND b.end_ns > s.from_ns AND b.start_ns < s.end_ns
    GROUP BY s.rank, s.op_id, s.culprit_rank, s.from_ns, s.end_ns, s.clock_error_ns, s.within_clock_error
),
credit_windows AS (
    SELECT c.rank, arg_max(o.op_id, (o.start_ns, o.op_id)) AS op_id, c.peer_rank AS culprit_rank,
        'credit' AS kind, c.start_ns, c.end_ns, 0 AS clock_error_ns, false AS within_clock_error
    FROM comm_phases AS c
    LEFT JOIN _operations AS o ON o.rank = c.rank AND o.start_ns < c.end_ns AND o.end_ns > c.start_ns
    WHERE c.phase = 'SendPeerWait' AND c.peer_rank IS NOT NULL
    GROUP BY c.rank, c.peer_rank, c.start_ns, c.end_ns, c.channel, c.seq, c.comm_id
),
windows AS (
    SELECT * FROM arrival_windows
    UNION ALL BY NAME SELECT * FROM seen_windows
    UNION ALL BY NAME SELECT * FROM credit_windows
)
SELECT w.rank, w.op_id, o.comm_id, o.seq, o.op, w.culprit_rank, w.kind, w.start_ns, w.end_ns,
    w.clock_error_ns::BIGINT AS clock_error_ns, w.within_clock_error
FROM windows AS w
LEFT JOIN _operations AS o USING (rank, op_id)
WHERE w.end_ns > w.start_ns
ORDER BY w.rank, w.start_ns, w.end_ns, w.kind, w.op_id, w.culprit_rank, w.within_clock_error;
