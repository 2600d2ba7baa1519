-- nsys_unsigned: an unsigned 64-bit id that SQLite keeps as a signed number.
--
-- Arguments: id BIGINT the id, negative above 2^63
-- Output:
--   UBIGINT              the id
-- Example: SELECT nsys_unsigned(-1);
CREATE OR REPLACE TEMP MACRO nsys_unsigned(id) AS
CASE WHEN id < 0 THEN (id::HUGEINT + 18446744073709551616)::UBIGINT ELSE id::UBIGINT END;
