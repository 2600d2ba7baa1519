-- report_timeline: what GPU, proxy threads and NICs did in the window of report_worst, at the resolution of a screen.
--
-- Inputs: report_worst, segments, gpu_ops, rdma_messages, thread_states
-- Output:
--   lane      VARCHAR  attribution, gpu, proxy or nic: the group of rows
--   row_name  VARCHAR  category, kind of GPU work, thread and its state, or device: one kind of thing a row
--   kind      VARCHAR  category, op_class, thread state, or post, in_flight, on_wire
--   label     VARCHAR  name of the longest thing in it
--   n         BIGINT   things drawn as one because they are closer than a 400th of the window
--   start_ns  BIGINT   start, ns on the run clock, cut to the window
--   end_ns    BIGINT   end, exclusive
--   busy_ns   HUGEINT  sum of their lengths, ns: more than end - start where they overlap
-- Assumes: the window is short, so reading it is a matter of row groups. Things of one row that are closer than a 400th
--          of the window become one (gaps and islands on the running maximum of ends); busy_ns tells how full it is.
CREATE OR REPLACE TEMP TABLE report_timeline AS
WITH near AS (
  SELECT 'attribution' AS lane, g.category AS row_name, g.category AS kind, g.category AS label, g.start_ns, g.end_ns
  FROM segments AS g
  JOIN report_worst AS w ON g.rank = w.rank AND g.start_ns < w.end_ns AND g.end_ns > w.start_ns
  UNION ALL
  SELECT 'gpu', CASE o.op_class WHEN 'comm' THEN 'GPU communication' WHEN 'copy' THEN 'GPU copies' ELSE 'GPU compute' END,
    o.op_class, o.name, o.start_ns, o.end_ns
  FROM gpu_ops AS o
  JOIN report_worst AS w ON o.rank = w.rank AND o.start_ns < w.end_ns AND o.end_ns > w.start_ns
  UNION ALL
  SELECT 'proxy', 'thread ' || t.tid || ' ' || t.state, t.state, coalesce(t.name, t.state), t.start_ns, t.end_ns
  FROM thread_states AS t
  JOIN report_worst AS w ON t.start_ns < w.end_ns AND t.end_ns > w.start_ns
  WHERE (t.node, t.tid) IN (
    SELECT (m.node, m.tid) FROM rdma_messages AS m JOIN report_worst AS v ON m.rank = v.rank
    WHERE m.enter_ns < v.end_ns AND m.enter_ns >= v.step_start_ns)
  UNION ALL
  SELECT 'proxy', 'thread ' || coalesce(CAST(m.tid AS VARCHAR), '?') || ' in post_send', 'post', 'post_send', m.enter_ns, m.exit_ns
  FROM rdma_messages AS m
  JOIN report_worst AS w ON m.rank = w.rank AND m.enter_ns < w.end_ns AND m.exit_ns > w.start_ns
  UNION ALL
  SELECT 'nic', coalesce(m.nic, 'NIC') || ' in flight', 'in_flight', 'messages in flight', m.exit_ns, m.complete_ns
  FROM rdma_messages AS m
  JOIN report_worst AS w ON m.rank = w.rank AND m.exit_ns < w.end_ns AND m.complete_ns > w.start_ns
  UNION ALL
  SELECT 'nic', coalesce(m.nic, 'NIC') || ' on the wire', 'on_wire', 'messages on the wire', m.service_start_ns, m.service_end_ns
  FROM rdma_messages AS m
  JOIN report_worst AS w ON m.rank = w.rank AND m.service_start_ns < w.end_ns AND m.service_end_ns > w.start_ns
), cut AS (
  SELECT n.lane, n.row_name, n.kind, n.label, greatest(n.start_ns, w.start_ns) AS start_ns, least(n.end_ns, w.end_ns) AS end_ns,
    (w.end_ns - w.start_ns) // 400 AS grain_ns
  FROM near AS n, report_worst AS w
  WHERE n.end_ns > n.start_ns
), reach AS (
  SELECT *, max(end_ns) OVER (PARTITION BY lane, row_name ORDER BY start_ns, end_ns, label
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
  FROM cut
), islands AS (
  SELECT *, sum(CASE WHEN before_ns IS NULL OR start_ns > before_ns + grain_ns THEN 1 ELSE 0 END) OVER (
    PARTITION BY lane, row_name ORDER BY start_ns, end_ns, label ROWS UNBOUNDED PRECEDING) AS island
  FROM reach
)
SELECT lane, row_name, first(kind) AS kind, first(label ORDER BY end_ns - start_ns DESC, label) AS label, count(*) AS n,
  min(start_ns) AS start_ns, max(end_ns) AS end_ns, sum(end_ns - start_ns) AS busy_ns
FROM islands
GROUP BY lane, row_name, island
ORDER BY lane, row_name, start_ns;
