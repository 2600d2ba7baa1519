-- _counter_samples: rows of counters from a file of samples.
--
-- Inputs: _counter_lines, the node in the variable counters_node
-- Output: the columns of counters
CREATE OR REPLACE TEMP VIEW _counter_samples AS
SELECT coalesce(node, getvariable('counters_node')) AS node, device, port, link_layer, counter, at_ns, "value"
FROM _counter_lines
WHERE good;
