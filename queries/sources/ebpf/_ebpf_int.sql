-- _ebpf_int: an `int` from its text, also where it was printed unsigned: 4294967285 and 18446744073709551605 are -11.
--
-- Arguments: t VARCHAR  the number as printed
-- Output: BIGINT; NULL where it is no number
CREATE OR REPLACE TEMP MACRO _ebpf_int(t) AS
CASE
    WHEN t = '0' THEN 0
    WHEN try_cast(t AS BIGINT) BETWEEN 2147483648 AND 4294967295 THEN try_cast(t AS BIGINT) - 4294967296
    ELSE coalesce(try_cast(t AS BIGINT), (try_cast(t AS UBIGINT)::HUGEINT - 18446744073709551616)::BIGINT)
END;
