-- _profiler_qps: rows of rdma_qps: which peer a queue pair of the network plugin serves.
--
-- Inputs: _profiler_spans, nccl_capture
-- Output: columns of rdma_qps
-- Assumes: the plugin numbers devices and does not name them: nic stays NULL. Work requests themselves are not taken:
-- their times are on a clock that can't be placed, and eBPF sees the same ones.
CREATE OR REPLACE TEMP VIEW _profiler_qps AS
SELECT c.node, s.pid, s.qp, s.of_peer AS peer_rank, min(s.at_ns) AS at_ns
FROM _profiler_spans AS s
CROSS JOIN nccl_capture AS c
WHERE s.cat = 'NET_IB' AND s.qp IS NOT NULL
GROUP BY ALL;
