-- _profiler_comm_ops: rows of comm_ops from NCCL's example profiler plugin.
--
-- Inputs: _profiler_spans, pid_ranks
-- Output: columns of comm_ops
CREATE OR REPLACE TEMP VIEW _profiler_comm_ops AS
SELECT
    r.rank,
    s.comm_id,
    s.seq,
    regexp_replace(s.name, '^nccl', '') AS op,
    s.count * _nccl_type_bytes(s.datatype) AS bytes,
    s.at_ns AS start_ns,
    s.end_ns,
    'nccl_profiler' AS source,
    CASE WHEN s.cat = 'P2P' THEN s.peer END AS peer_rank
FROM _profiler_spans AS s
LEFT JOIN pid_ranks AS r ON s.pid = r.pid
WHERE s.cat IN ('COLL', 'P2P');
