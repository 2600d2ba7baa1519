-- report_sources: rows of each event table in the run, the "is the data there" check of a report.
--
-- Inputs: gpu_ops, cuda_api, nvtx, os_calls, thread_states, rdma_posts, rdma_completions, comm_ops, comm_phases, counters,
--   log_events
-- Output:
--   source  VARCHAR  table
--   n       BIGINT   rows
CREATE OR REPLACE TEMP TABLE report_sources AS
SELECT 'gpu_ops' AS source, count(*) AS n FROM gpu_ops
UNION ALL SELECT 'cuda_api', count(*) FROM cuda_api
UNION ALL SELECT 'nvtx', count(*) FROM nvtx
UNION ALL SELECT 'os_calls', count(*) FROM os_calls
UNION ALL SELECT 'thread_states', count(*) FROM thread_states
UNION ALL SELECT 'rdma_posts', count(*) FROM rdma_posts
UNION ALL SELECT 'rdma_completions', count(*) FROM rdma_completions
UNION ALL SELECT 'comm_ops', count(*) FROM comm_ops
UNION ALL SELECT 'comm_phases', count(*) FROM comm_phases
UNION ALL SELECT 'counters', count(*) FROM counters
UNION ALL SELECT 'log_events', count(*) FROM log_events;
