-- find_error_completions: work requests that the NIC could not complete.
--
-- Inputs: rdma_completions
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
CREATE OR REPLACE TEMP TABLE find_error_completions AS
SELECT
    'critical' AS severity,
    any_value(rank ORDER BY seen_ns, qp) AS rank, node, any_value(nic ORDER BY seen_ns, qp) AS nic, NULL::BIGINT AS step,
    'completions in error' AS measure,
    count(*) AS value,
    1 AS threshold,
    'measured_ebpf' AS evidence,
    printf('%d completions in error on %s, first ibv_wc_status %d on queue pair %d%s.', count(*), node,
        arg_min(status, (seen_ns, qp, status)), arg_min(qp, (seen_ns, qp, status)),
        CASE arg_min(status, (seen_ns, qp, status)) WHEN 5 THEN ' (flushed: the queue pair was in error before)' WHEN 12 THEN ' (retries exceeded: no answer from the peer)'
            WHEN 13 THEN ' (receiver not ready)' WHEN 10 THEN ' (remote access)' ELSE '' END) AS text,
    'excluded: nothing to exclude, the NIC says so; not excluded: a flush at the normal end of the job' AS confounders,
    'look at the peer and the link of that queue pair, and at the kernel log of both nodes' AS next
FROM rdma_completions
WHERE status <> 0
GROUP BY node;
