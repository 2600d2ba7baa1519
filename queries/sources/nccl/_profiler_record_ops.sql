-- _profiler_record_ops: rows of comm_ops from a plugin that writes one record an event.
--
-- Inputs: nccl_events (from _profiler_record_events), pid_ranks
-- Output: columns of comm_ops
-- Assumes: the rank is that of the pid where the process has one rank; where it drives several GPUs, the rank in the
-- largest communicator, which is the job's.
CREATE OR REPLACE TEMP VIEW _profiler_record_ops AS
WITH comms AS (
    SELECT comm_id, max(n_ranks) AS n_ranks FROM nccl_events WHERE type = 'ProfilerLifecycle' GROUP BY comm_id
),

processes AS (
    SELECT pid, count(DISTINCT comm_rank) FILTER (WHERE comm_id = (SELECT max_by(comm_id, n_ranks) FROM comms)) AS ranks
    FROM nccl_events
    GROUP BY pid
)

SELECT
    CASE
        WHEN p.ranks <= 1 THEN r.rank
        WHEN c.n_ranks = (SELECT max(n_ranks) FROM comms) THEN e.comm_rank
    END AS rank,
    e.comm_id,
    e.seq,
    e.op,
    e.count * _nccl_type_bytes(e.datatype) AS bytes,
    c.n_ranks,
    e.start_ns,
    e.end_ns,
    'nccl_profiler' AS source,
    e.peer AS peer_rank
FROM nccl_events AS e
LEFT JOIN comms AS c ON e.comm_id = c.comm_id
LEFT JOIN processes AS p ON e.pid = p.pid
LEFT JOIN pid_ranks AS r ON e.pid = r.pid
WHERE e.type IN ('ncclProfileColl', 'ncclProfileP2p');
