-- _counter_bad_lines: lines of a file of samples that are none.
--
-- Inputs: _counter_lines
-- Output:
--   line        VARCHAR  the line
CREATE OR REPLACE TEMP VIEW _counter_bad_lines AS
SELECT coalesce(line, '') AS line FROM _counter_lines WHERE NOT good;
