-- gpu_nics: the path of each GPU to each NIC of its node, nearest first, from nvidia-smi topo -m.
--
-- Inputs: topology
-- Output:
--   run        VARCHAR  run
--   node       VARCHAR  node
--   gpu_index  BIGINT   GPU
--   nic        VARCHAR  RDMA device
--   path       VARCHAR  nvidia-smi's word: PIX, PXB, PHB, NODE, SYS
--   distance   BIGINT   0 (PIX: one PCIe switch) to 4 (SYS: across sockets); NULL for an unknown word
--   nearest    BOOLEAN  no other NIC of the node is nearer
-- Assumes: the matrix may be given by either half; a pair that is given twice says the same.
-- Example: SELECT gpu_index, nic FROM gpu_nics WHERE nearest;
CREATE OR REPLACE VIEW gpu_nics AS
WITH pairs AS (
    SELECT run, node, a AS gpu, b AS nic, path FROM topology WHERE a LIKE 'GPU%' AND b NOT LIKE 'GPU%'
    UNION
    SELECT run, node, b, a, path FROM topology WHERE b LIKE 'GPU%' AND a NOT LIKE 'GPU%'
),
measured AS (
    SELECT run, node, try_cast(substr(gpu, 4) AS BIGINT) AS gpu_index, nic, path,
        list_position(['PIX', 'PXB', 'PHB', 'NODE', 'SYS'], path) - 1 AS distance
    FROM pairs
)
SELECT run, node, gpu_index, nic, path, distance::BIGINT AS distance,
    coalesce(distance = min(distance) OVER (PARTITION BY run, node, gpu_index), false) AS nearest
FROM measured
WHERE gpu_index IS NOT NULL
ORDER BY run, node, gpu_index, distance NULLS LAST, nic;
