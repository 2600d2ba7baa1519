-- _ebpf_int: an `int` that was printed unsigned, as it was: 4294967285 is -11.
--
-- Arguments: v BIGINT  the number as printed
-- Output: BIGINT
CREATE OR REPLACE TEMP MACRO _ebpf_int(v) AS CASE WHEN v BETWEEN 2147483648 AND 4294967295 THEN v - 4294967296 ELSE v END;
