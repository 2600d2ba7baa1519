-- threshold: a limit of a detector (pipeline.model.thresholds).
--
-- Inputs: thresholds
-- Arguments: detector VARCHAR detector, without find_
-- Arguments: limit_name VARCHAR name of the limit
-- Output:
--   DOUBLE  its value, in the unit that the table thresholds gives
CREATE OR REPLACE TEMP MACRO threshold(detector_name, limit_name) AS (
    SELECT t.value FROM thresholds AS t WHERE t.detector = detector_name AND t.name = limit_name
);
