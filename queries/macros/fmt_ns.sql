-- fmt_ns: a duration for people.
--
-- Arguments:
--   duration_ns  BIGINT  duration, ns
-- Output: VARCHAR: in ns, µs, ms or s, three decimals beyond ns
-- Example: SELECT fmt_ns(max(end_ns - start_ns)) FROM steps;
CREATE OR REPLACE MACRO fmt_ns(duration_ns) AS
    CASE
        WHEN abs(duration_ns) < 1000 THEN printf('%d ns', duration_ns::BIGINT)
        WHEN abs(duration_ns) < 1000000 THEN printf('%.3f µs', duration_ns / 1e3)
        WHEN abs(duration_ns) < 1000000000 THEN printf('%.3f ms', duration_ns / 1e6)
        ELSE printf('%.3f s', duration_ns / 1e9)
    END;
