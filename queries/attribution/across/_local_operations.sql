-- _local_operations: the operations whose participants are known and all on one node.
--
-- Inputs: _participants, _operations, ranks, run_config
-- Output:
--   rank   BIGINT  rank of the operation
--   op_id  BIGINT  operation of that rank
-- Assumes: participants found by counting operations (no communicator given) are all of them only if every
--   expected rank has a capture; else a peer on another node may be one that nobody recorded.
CREATE OR REPLACE TEMP TABLE _local_operations AS
WITH instance AS (
    SELECT
        p.instance_id,
        count(DISTINCT p.rank) AS n_members,
        count(DISTINCT r.node) AS n_nodes,
        count(*) FILTER (r.node IS NULL) AS n_without_node,
        max(o.n_ranks) AS n_ranks
    FROM _participants AS p
    JOIN _operations AS o USING (rank, op_id)
    LEFT JOIN ranks AS r USING (rank)
    GROUP BY p.instance_id
)
SELECT DISTINCT p.rank, p.op_id
FROM _participants AS p
JOIN instance AS i USING (instance_id)
CROSS JOIN run_config AS c
CROSS JOIN (SELECT count(DISTINCT rank) AS n FROM ranks) AS present
WHERE i.n_members >= 2
    AND i.n_nodes = 1
    AND i.n_without_node = 0
    AND coalesce(i.n_ranks, greatest(c.expected_ranks, present.n) - present.n + i.n_members) = i.n_members;
