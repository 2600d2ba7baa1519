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
--          overlap a hundredfold, their union does not. All categories are merged in one running maximum: each gets
--          its own stretch of the number line, 2^58 ns (nine years) long.
CREATE OR REPLACE TEMP TABLE _network_candidates AS
WITH known (code, category, evidence) AS (
    VALUES
        (0::BIGINT, 'rdma_transfer', 'inferred'),
        (1, 'ctl_cpu', 'measured_ebpf'),
        (2, 'ctl_fetch', 'modelled'),
        (3, 'blocking_rtt', 'inferred'),
        (4, 'net_latency', 'inferred'),
        (5, 'net_excess', 'inferred'),
        (6, 'ctl_notify', 'measured_profiler'),
        (7, 'wait_credit', 'measured_profiler')
),
claims AS (
    SELECT 0::BIGINT AS code, service_start_ns AS start_ns, service_end_ns AS end_ns FROM _carried_messages
    UNION ALL
    SELECT 1, start_ns, end_ns FROM _ctl_occupancy
    UNION ALL
    SELECT 2, exit_ns, exit_ns + fetch_ns FROM _carried_messages
    UNION ALL
    SELECT
        CASE WHEN chain THEN 3 ELSE 4 END,
        service_end_ns,
        least(service_end_ns + rtt0_ns, coalesce(released_ns, service_end_ns + rtt0_ns))
    FROM _carried_messages
    UNION ALL
    SELECT 5, service_end_ns + rtt0_ns, complete_ns FROM _carried_messages
    UNION ALL
    SELECT CASE phase WHEN 'SendGPUWait' THEN 6 ELSE 7 END, start_ns, end_ns
    FROM comm_phases
    WHERE phase IN ('SendGPUWait', 'SendPeerWait')
),
base AS (
    SELECT min(start_ns) AS base_ns FROM claims
),
placed AS (
    SELECT c.code, (c.code << 58) + c.start_ns - b.base_ns AS first, (c.code << 58) + c.end_ns - b.base_ns AS last
    FROM claims AS c
    CROSS JOIN base AS b
    WHERE c.end_ns > c.start_ns
),
marked AS (
    SELECT
        *,
        first > coalesce(max(last) OVER (ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), first - 1) AS begins
    FROM (FROM placed ORDER BY first, last)
),
merged AS (
    SELECT code, min(first) AS first, max(last) AS last
    FROM (SELECT *, sum(begins::BIGINT) OVER (ROWS UNBOUNDED PRECEDING) AS island FROM marked)
    GROUP BY code, island
)
SELECT
    m.first - (m.code << 58) + b.base_ns AS start_ns,
    m.last - (m.code << 58) + b.base_ns AS end_ns,
    k.category,
    k.evidence
FROM merged AS m
JOIN known AS k USING (code)
CROSS JOIN base AS b
ORDER BY k.category, start_ns;
