-- export_slices: everything that a timeline viewer shows of the chosen step, as slices on tracks.
--
-- Inputs: export_window, segments, gpu_ops, cuda_api, nvtx, thread_states, rdma_messages
-- Output:
--   rank       BIGINT   rank
--   kind       VARCHAR  category, gpu, api, nvtx, state, post or completion; orders the tracks
--   track      VARCHAR  name of the track
--   name       VARCHAR  name of the slice
--   start_ns   BIGINT   start, ns on the run clock
--   end_ns     BIGINT   end, exclusive; a completion is an instant
--   flow_id    UBIGINT  joins a launch to its kernel, and a post to its completion; NULL: neither
--   flow_end   BOOLEAN  the flow arrives here
--   details    MAP      text beside it
--   numbers    MAP      integers beside it, units in their names
-- Assumes: events are shown whole where they touch the step. Slices of one track must nest, so what crosses the end of an
--          earlier slice of its track goes to a second track of the same name with " (overlap)".
CREATE OR REPLACE TEMP TABLE export_slices AS
WITH messages AS (
  SELECT m.*, row_number() OVER (ORDER BY m.rank, m.node, m.enter_ns, m.qp, m.wr_id, m.complete_ns) AS message
  FROM rdma_messages AS m
  JOIN export_window AS w ON w.rank = m.rank AND m.enter_ns < w.end_ns AND coalesce(m.complete_ns, m.exit_ns) >= w.start_ns
), kernels AS (
  SELECT g.*
  FROM gpu_ops AS g
  JOIN export_window AS w ON w.rank = g.rank AND g.start_ns < w.end_ns AND g.end_ns > w.start_ns
), launches AS (
  SELECT rank, correlation_id
  FROM kernels
  WHERE correlation_id > 0 AND launch_start_ns IS NOT NULL
  GROUP BY rank, correlation_id
), proxies AS (
  SELECT DISTINCT rank, node, tid FROM messages WHERE tid IS NOT NULL
  UNION
  SELECT k.rank, w.node, k.launch_tid FROM kernels AS k JOIN export_window AS w ON w.rank = k.rank WHERE k.launch_tid IS NOT NULL
), found AS (
  SELECT g.rank, 'category' AS kind, 'attribution' AS track, g.category AS name, g.start_ns, g.end_ns,
    CAST(NULL AS UBIGINT) AS flow_id, false AS flow_end, MAP {'evidence': g.evidence} AS details, MAP {'step': g.step} AS numbers
  FROM segments AS g
  JOIN export_window AS w ON w.rank = g.rank AND g.start_ns < w.end_ns AND g.end_ns > w.start_ns
  UNION ALL
  SELECT k.rank, 'gpu', 'GPU ' || coalesce(k.device, 0) || ' stream ' || coalesce(k.stream, 0), k.name, k.start_ns, k.end_ns,
    CASE WHEN l.correlation_id IS NOT NULL THEN hash('launch', k.rank, k.correlation_id) END, true,
    MAP {'class': k.op_class, 'comm_op': k.comm_op, 'copy_kind': k.copy_kind},
    MAP {'bytes': k.bytes, 'correlation_id': k.correlation_id, 'context': k.context, 'graph_id': k.graph_id}
  FROM kernels AS k
  LEFT JOIN launches AS l ON l.rank = k.rank AND l.correlation_id = k.correlation_id
  UNION ALL
  SELECT a.rank, 'api', 'CPU thread ' || coalesce(CAST(a.tid AS VARCHAR), '?'), a.name, a.start_ns, a.end_ns,
    CASE WHEN l.correlation_id IS NOT NULL THEN hash('launch', a.rank, a.correlation_id) END, false,
    MAP {'kind': 'CUDA API'}, MAP {'correlation_id': a.correlation_id}
  FROM cuda_api AS a
  JOIN export_window AS w ON w.rank = a.rank AND a.start_ns < w.end_ns AND a.end_ns > w.start_ns
  LEFT JOIN launches AS l ON l.rank = a.rank AND l.correlation_id = a.correlation_id
  UNION ALL
  SELECT n.rank, 'nvtx', 'NVTX thread ' || coalesce(CAST(n.tid AS VARCHAR), '?'), coalesce(n.text, n.kind), n.start_ns, n.end_ns,
    NULL, false, MAP {'domain': n.domain}, MAP {'tid': n.tid}
  FROM nvtx AS n
  JOIN export_window AS w ON w.rank = n.rank AND n.start_ns < w.end_ns AND n.end_ns > w.start_ns
  WHERE n.kind = 'push_pop'
  UNION ALL
  SELECT p.rank, 'state', 'state of thread ' || t.tid, t.state, t.start_ns, t.end_ns, NULL, false, MAP {'thread': t.name},
    MAP {'cpu': t.cpu, 'other_tid': t.other_tid}
  FROM thread_states AS t
  JOIN proxies AS p ON p.node = t.node AND p.tid = t.tid
  JOIN export_window AS w ON w.rank = p.rank AND t.start_ns < w.end_ns AND t.end_ns > w.start_ns
  UNION ALL
  SELECT m.rank, 'post', 'posts of thread ' || coalesce(CAST(m.tid AS VARCHAR), '?'), 'post_send ' || coalesce(m.opcode, ''),
    m.enter_ns, m.exit_ns, CASE WHEN m.complete_ns IS NOT NULL THEN hash('message', m.message) END, false,
    MAP {'nic': m.nic, 'completion': CASE WHEN m.complete_ns IS NULL THEN 'never seen' END},
    MAP {'bytes': m.bytes, 'qp': m.qp, 'outstanding_at_post': m.outstanding_at_post}
  FROM messages AS m
  UNION ALL
  SELECT m.rank, 'completion', 'completions of ' || coalesce(m.nic, 'NIC'), 'completion ' || coalesce(m.opcode, ''), m.complete_ns,
    m.complete_ns, hash('message', m.message), true, MAP {'nic': m.nic},
    MAP {'bytes': m.bytes, 'qp': m.qp, 'status': m.status, 'flight_ns': m.complete_ns - m.exit_ns}
  FROM messages AS m
  WHERE m.complete_ns IS NOT NULL
), reach AS (
  SELECT *, max(end_ns) OVER (PARTITION BY rank, kind, track ORDER BY start_ns, end_ns DESC, name
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns
  FROM found
  WHERE end_ns >= start_ns
)
SELECT rank, kind, CASE WHEN start_ns < before_ns AND end_ns > before_ns THEN track || ' (overlap)' ELSE track END AS track,
  name, start_ns, end_ns, flow_id, flow_end, details, numbers
FROM reach
ORDER BY rank, kind, track, start_ns, end_ns DESC, name;
