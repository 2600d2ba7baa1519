-- report_own_messages: the messages that a report is about: of its ranks, posted inside its steps where one was asked for.
--
-- Inputs: rdma_messages, report_scope
-- Output: the columns of rdma_messages that statistics need; flight_ns BIGINT is completion minus return of the post, ns
CREATE OR REPLACE TEMP VIEW report_own_messages AS
SELECT m.node, m.rank, m.tid, m.nic, m.qp, m.bytes, m.opcode_class, m.enter_ns, m.exit_ns, m.complete_ns,
  m.outstanding_at_post, m.blocked, m.chain, m.status, m.complete_ns - m.exit_ns AS flight_ns
FROM rdma_messages AS m
CROSS JOIN report_scope AS c
WHERE (c.rank IS NULL OR m.rank = c.rank) AND (c.step IS NULL OR m.step = c.step);
