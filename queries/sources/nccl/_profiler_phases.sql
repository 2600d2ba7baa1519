-- _profiler_phases: rows of comm_phases: what each step of a proxy operation waited for.
--
-- Inputs: _profiler_spans, pid_ranks
-- Output: columns of comm_phases
-- Assumes: NCCL's releases spell a phase SendGpuWait or SendGPUWait. A proxy operation's bytes spread evenly over its
-- steps. A phase without both ends is none.
CREATE OR REPLACE TEMP VIEW _profiler_phases AS
SELECT
    r.rank,
    s.of_comm AS comm_id,
    s.of_seq AS seq,
    s.of_channel AS channel,
    s.of_peer AS peer_rank,
    replace(s.name, 'Gpu', 'GPU') AS phase,
    s.at_ns AS start_ns,
    s.end_ns,
    s.of_trans_bytes // nullif(s.of_steps, 0) AS bytes
FROM _profiler_spans AS s
LEFT JOIN pid_ranks AS r ON s.pid = r.pid
WHERE s.cat = 'NET' AND s.at_ns IS NOT NULL AND s.end_ns >= s.at_ns;
