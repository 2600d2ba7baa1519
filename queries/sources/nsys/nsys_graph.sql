-- nsys_graph: the executed CUDA graph of a graph node, where the export has no graphId.
--
-- Arguments: node BIGINT graphNodeId
-- Output:
--   BIGINT               graph: the upper half of the node's id; NULL outside graphs
-- Example: SELECT nsys_graph(8589934593);
CREATE OR REPLACE TEMP MACRO nsys_graph(node) AS (nsys_unsigned(nullif(node, 0)) >> 32)::BIGINT;
