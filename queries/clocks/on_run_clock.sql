-- on_run_clock: a capture's time on its node's UTC, exact in 64-bit integers.
--
-- Arguments:
--   at_ns       BIGINT   time on the capture's clock, ns
--   offset_ns   BIGINT   UTC minus the capture's clock at t0_ns
--   t0_ns       BIGINT   instant on the capture's clock at which offset_ns holds
--   drift_ppb   BIGINT   how much faster UTC runs than the capture's clock, parts per billion
-- Output: UTC epoch ns, BIGINT
-- Assumes: |drift_ppb| < 1 000 000 000. Seconds and the rest of a second are scaled apart, because
--   (at_ns - t0_ns) * drift_ppb leaves 64 bits after hours; HUGEINT would be several times slower.
-- Example: SELECT on_run_clock(2000000000, 100, 0, 1000);
CREATE OR REPLACE MACRO on_run_clock(at_ns, offset_ns, t0_ns, drift_ppb) AS
    at_ns + offset_ns
    + ((at_ns - t0_ns) // 1000000000) * drift_ppb
    + (((at_ns - t0_ns) % 1000000000) * drift_ppb) // 1000000000;
