-- message_sizes: histogram of message sizes by sender and peer, in powers of two.
--
-- Inputs: message_with_step, size_class
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run          VARCHAR  run
--   rank         BIGINT   rank
--   peer_rank    BIGINT   receiver; NULL where unknown
--   from_bytes   BIGINT   least size of the class; it ends before twice that
--   n_messages   BIGINT   messages
--   total_bytes  BIGINT   their payload
-- Example: FROM message_sizes() WHERE rank = 0;
CREATE OR REPLACE MACRO message_sizes(in_run := NULL) AS TABLE
SELECT m.run, m.rank, m.peer_rank, size_class(m.bytes) AS from_bytes, count(*) AS n_messages,
    sum(m.bytes)::BIGINT AS total_bytes
FROM message_with_step AS m
WHERE in_run IS NULL OR m.run = in_run
GROUP BY ALL
ORDER BY m.run, m.rank, m.peer_rank, from_bytes;
