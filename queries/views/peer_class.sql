-- peer_class: how two GPUs of a rail-optimised cluster reach each other.
--
-- Arguments:
--   node_a   VARCHAR  node of the first GPU
--   rail_a   BIGINT   its rail: its ordinal on the node, where NICs and GPUs go in pairs
--   node_b   VARCHAR  node of the second GPU
--   rail_b   BIGINT   its rail
-- Output: VARCHAR: same_node, same_rail or cross_rail; NULL where something is unknown
-- Assumes: GPU k of every node has its NIC on leaf switch k. The same as pipeline.model.topology.peer_class.
-- Example: SELECT peer_class('a', 0, 'b', 3);
CREATE OR REPLACE MACRO peer_class(node_a, rail_a, node_b, rail_b) AS
    CASE
        WHEN node_a = node_b THEN 'same_node'
        WHEN node_a <> node_b AND rail_a = rail_b THEN 'same_rail'
        WHEN node_a <> node_b AND rail_a <> rail_b THEN 'cross_rail'
    END;
