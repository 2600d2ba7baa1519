-- find_retransmission: the NIC's own counters of timeouts and sequence errors grew.
--
-- Inputs: _counter_growth, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: out_of_buffer is a drop at the receiver and no retransmission by itself, so it is left out. RoCE counts adaptive
--          retransmissions; their names start with roce_.
CREATE OR REPLACE TEMP TABLE find_retransmission AS
SELECT
    'warning' AS severity,
    NULL::BIGINT AS rank, node, device AS nic, NULL::BIGINT AS step,
    'timeouts and sequence errors of the port' AS measure,
    sum(growth) AS value,
    threshold('retransmission', 'count') AS threshold,
    'inferred' AS evidence,
    printf('%s of %s retransmits: %s.', device, node, string_agg(printf('%s +%.0f', counter, growth), ', ' ORDER BY growth DESC, counter)) AS text,
    'excluded: drops for want of receive buffers (out_of_buffer is another counter); not excluded: another job on the port' AS confounders,
    'look at cable, optics and the switch port; adaptive routing reorders and can raise out_of_sequence by design' AS next
FROM _counter_growth
WHERE growth > 0
    AND (counter IN ('local_ack_timeout_err', 'packet_seq_err', 'out_of_sequence', 'rnr_nak_retry_err', 'implied_nak_seq_err',
        'req_cqe_error', 'resp_cqe_error') OR starts_with(counter, 'roce_adp_retrans') OR starts_with(counter, 'roce_slow_restart'))
GROUP BY node, device
HAVING sum(growth) >= threshold('retransmission', 'count');
