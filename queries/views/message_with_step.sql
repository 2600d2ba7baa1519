-- message_with_step: each RDMA message with the step it was posted in, its peer, and its times.
--
-- Inputs: rdma_messages, steps, queue_pair_peers
-- Output:
--   run                  VARCHAR  run
--   rank                 BIGINT   rank that posted it
--   step                 BIGINT   step in which it was posted; NULL: none
--   counted              BOOLEAN  the step is complete and no outlier; NULL: no step
--   node                 VARCHAR  node
--   pid                  BIGINT   process
--   tid                  BIGINT   thread that posted it
--   nic                  VARCHAR  RDMA device
--   qp                   BIGINT   queue pair
--   peer_rank            BIGINT   rank at the other end; NULL where unknown
--   peer_class           VARCHAR  same_node, same_rail or cross_rail; NULL where unknown
--   op_id                BIGINT   communication operation that was open; NULL: none
--   opcode_class         VARCHAR  write, read, atomic or send
--   bytes                BIGINT   payload
--   enter_ns             BIGINT   entry of post_send, ns on the run clock
--   exit_ns              BIGINT   return of post_send, ns on the run clock
--   complete_ns          BIGINT   completion seen, ns on the run clock; NULL: never
--   post_ns              BIGINT   time in post_send, ns
--   flight_ns            BIGINT   from the return of post_send to the completion, ns
--   outstanding_at_post  BIGINT   messages of the queue pair in flight at enter_ns
--   blocked              BOOLEAN  posted only after the completion of the one before was seen
--   status               BIGINT   ibv_wc_status; NULL: no completion
-- Example: SELECT step, sum(bytes) FROM message_with_step WHERE rank = 0 GROUP BY step ORDER BY step;
CREATE OR REPLACE VIEW message_with_step AS
SELECT m.run, m.rank, m.step, s.counted, m.node, m.pid, m.tid, m.nic, m.qp, p.peer_rank, p.peer_class, m.op_id,
    m.opcode_class, m.bytes, m.enter_ns, m.exit_ns, m.complete_ns, m.exit_ns - m.enter_ns AS post_ns,
    m.complete_ns - m.exit_ns AS flight_ns, m.outstanding_at_post, m.blocked, m.status
FROM rdma_messages AS m
LEFT JOIN (
    SELECT run, rank, step, bool_and(complete AND NOT outlier) AS counted FROM steps GROUP BY run, rank, step
) AS s ON m.run = s.run AND m.rank = s.rank AND m.step = s.step
LEFT JOIN queue_pair_peers AS p
    ON m.run = p.run AND m.node IS NOT DISTINCT FROM p.node AND m.pid IS NOT DISTINCT FROM p.pid
    AND m.qp IS NOT DISTINCT FROM p.qp;
