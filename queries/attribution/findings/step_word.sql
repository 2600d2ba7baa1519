-- step_word: what findings call a step: windows over a run in which no steps were found are no steps.
--
-- Inputs: _counted_steps
-- Arguments: none
-- Output:
--   VARCHAR  step or window
CREATE OR REPLACE TEMP MACRO step_word() AS (
    SELECT CASE WHEN bool_and(c.source = 'window') THEN 'window' ELSE 'step' END FROM _counted_steps AS c
);
