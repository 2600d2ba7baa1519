-- nsys_copy_kind: names of the kinds of copy.
--
-- Inputs: nsys_raw_copy_kinds
-- Output:
--   id          BIGINT   copyKind
--   label       VARCHAR  name, as the export says, else as CUPTI's cupti_activity.h does
CREATE OR REPLACE TEMP TABLE nsys_copy_kind AS
SELECT known.id, coalesce(e.label, known.label) AS label
FROM (VALUES
    (0, 'Unknown'), (1, 'Host-to-Device'), (2, 'Device-to-Host'), (3, 'Host-to-Array'), (4, 'Array-to-Host'),
    (5, 'Array-to-Array'), (6, 'Array-to-Device'), (7, 'Device-to-Array'), (8, 'Device-to-Device'),
    (9, 'Host-to-Host'), (10, 'Peer-to-Peer'), (11, 'Unified Host-to-Device'), (12, 'Unified Device-to-Host'),
    (13, 'Unified Device-to-Device')
) AS known(id, label)
LEFT JOIN nsys_raw_copy_kinds AS e ON e.id = known.id
UNION ALL
SELECT e.id, e.label FROM nsys_raw_copy_kinds AS e WHERE e.id > 13;
