-- _network_candidates: where the network's categories hold; the sweep keeps what lies inside communication kernels.
--
-- Inputs: _carried_messages, _ctl_occupancy, comm_phases
-- Output:
--   start_ns    BIGINT   start, ns
--   end_ns      BIGINT   end, exclusive, ns
--   category    VARCHAR  rdma_transfer, ctl_cpu, ctl_fetch, blocking_rtt, net_latency, net_excess, ctl_notify,
--                        wait_credit
--   evidence    VARCHAR  how it is known
-- Assumes: one rank. Without beta there is no service, so neither transfer nor latency nor excess is claimed, and the
--          flight falls to comm_unattributed. Of a lost message only the service and the base latency are claimed, until
--          a later completion says that it was done. Intervals of a category are merged first: pipelined messages
--          overlap a hundredfold, their union does not.
CREATE OR REPLACE TEMP TABLE _network_candidates AS
WITH claims AS (
    SELECT service_start_ns AS start_ns, service_end_ns AS end_ns, 'rdma_transfer' AS category, 'inferred' AS evidence
    FROM _carried_messages
    UNION ALL
    SELECT start_ns, end_ns, 'ctl_cpu' AS category, 'measured_ebpf' AS evidence FROM _ctl_occupancy
    UNION ALL
    SELECT exit_ns AS start_ns, exit_ns + fetch_ns AS end_ns, 'ctl_fetch' AS category, 'modelled' AS evidence
    FROM _carried_messages
    WHERE fetch_ns > 0
    UNION ALL
    SELECT
        service_end_ns AS start_ns,
        least(service_end_ns + rtt0_ns, coalesce(released_ns, service_end_ns + rtt0_ns)) AS end_ns,
        CASE WHEN chain THEN 'blocking_rtt' ELSE 'net_latency' END AS category,
        'inferred' AS evidence
    FROM _carried_messages
    UNION ALL
    SELECT service_end_ns + rtt0_ns AS start_ns, complete_ns AS end_ns, 'net_excess' AS category, 'inferred' AS evidence
    FROM _carried_messages
    UNION ALL
    SELECT
        start_ns,
        end_ns,
        CASE phase WHEN 'SendGPUWait' THEN 'ctl_notify' ELSE 'wait_credit' END AS category,
        'measured_profiler' AS evidence
    FROM comm_phases
    WHERE phase IN ('SendGPUWait', 'SendPeerWait')
),
marked AS (
    SELECT
        *,
        start_ns > coalesce(
            max(end_ns) OVER (
                PARTITION BY category, evidence
                ORDER BY start_ns, end_ns
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            start_ns - 1
        ) AS begins
    FROM claims
    WHERE end_ns > start_ns
),
numbered AS (
    SELECT
        *,
        count(*) FILTER (begins) OVER (
            PARTITION BY category, evidence ORDER BY start_ns, end_ns ROWS UNBOUNDED PRECEDING
        ) AS island
    FROM marked
)
SELECT min(start_ns) AS start_ns, max(end_ns) AS end_ns, category, evidence
FROM numbered
GROUP BY category, evidence, island
ORDER BY category, start_ns;
