-- find_far_nic: a GPU whose NIC is not behind its own PCIe switches.
--
-- Inputs: topology, ranks
-- Output:
--   severity    VARCHAR  info or warning
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: a rank's own NIC counts where it is known, else the GPU's nearest; PIX and PXB pass PCIe switches only.
CREATE OR REPLACE TEMP TABLE find_far_nic AS
WITH pairs AS (
    SELECT node, try_cast(a[4:] AS BIGINT) AS gpu, b AS nic, path FROM topology
    WHERE regexp_matches(a, '^GPU[0-9]+$') AND NOT regexp_matches(b, '^GPU[0-9]+$')
    UNION
    SELECT node, try_cast(b[4:] AS BIGINT), a, path FROM topology
    WHERE regexp_matches(b, '^GPU[0-9]+$') AND NOT regexp_matches(a, '^GPU[0-9]+$')
),
placed AS (
    SELECT *, list_position(['PIX', 'PXB', 'PHB', 'NODE', 'SYS'], path) AS distance FROM pairs
    WHERE path IN ('PIX', 'PXB', 'PHB', 'NODE', 'SYS')
),
nearest AS (
    SELECT node, gpu, nic, path, distance FROM placed
    QUALIFY row_number() OVER (PARTITION BY node, gpu ORDER BY distance, nic) = 1
),
used AS (
    SELECT r.rank, n.node, n.gpu, coalesce(p.nic, n.nic) AS nic, coalesce(p.path, n.path) AS path,
        n.nic AS near_nic, n.path AS near_path, n.distance < coalesce(p.distance, n.distance) AS nearer
    FROM nearest AS n
    LEFT JOIN ranks AS r ON n.node = r.node AND n.gpu = r.gpu_index
    LEFT JOIN placed AS p ON r.node = p.node AND r.gpu_index = p.gpu AND r.nic = p.nic
),
far AS (
    SELECT * FROM used WHERE path NOT IN ('PIX', 'PXB')
)
SELECT
    'warning' AS severity,
    min(rank) AS rank, node, arg_min(nic, (gpu, rank, nic)) AS nic, NULL::BIGINT AS step,
    'GPUs whose NIC is beyond their PCIe switches' AS measure,
    count(DISTINCT gpu) AS value,
    1 AS threshold,
    'inferred' AS evidence,
    printf('%d GPUs of %s reach their NIC over the CPU: GPU%d to %s is %s%s.', count(DISTINCT gpu), node, min(gpu), arg_min(nic, (gpu, rank, nic)), arg_min(path, (gpu, rank, nic)),
        CASE WHEN arg_min(nearer, (gpu, rank, nic)) THEN printf(', while %s is %s', arg_min(near_nic, (gpu, rank, nic)), arg_min(near_path, (gpu, rank, nic))) ELSE '' END) AS text,
    'excluded: NICs behind the GPU''s own PCIe switches (PIX, PXB); not excluded: a board that has no such path (C2C)' AS confounders,
    'check nvidia-smi topo -m, NCCL_IB_HCA and the placement of ranks on GPUs' AS next
FROM far
GROUP BY node;
