-- report_losses: declared losses of events, by node, rank and source.
--
-- Inputs: losses, report_scope
-- Output:
--   node         VARCHAR  node
--   rank         BIGINT   rank; NULL: all of the node
--   source       VARCHAR  ebpf or nsys
--   windows      BIGINT   stretches of time that are affected
--   covered_ns   HUGEINT  their length in all, ns
--   lost_events  HUGEINT  events lost; NULL: unknown
CREATE OR REPLACE TEMP TABLE report_losses AS
SELECT l.node, l.rank, l.source, count(*) AS windows, sum(l.end_ns - l.start_ns) AS covered_ns, sum(l.lost_events) AS lost_events
FROM losses AS l, report_scope AS c
WHERE c.rank IS NULL OR l.rank IS NULL OR l.rank = c.rank
GROUP BY l.node, l.rank, l.source
ORDER BY l.node, l.rank NULLS FIRST, l.source;
