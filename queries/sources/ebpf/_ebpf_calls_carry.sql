-- _ebpf_calls_carry: records of calls that the next block may complete.
--
-- Inputs: _ebpf_calls, ebpf_block
-- Output: columns of calls_in
-- Assumes: a return without an entry has lost its entry once the watermark has passed.
CREATE OR REPLACE TEMP TABLE _ebpf_calls_carry AS
SELECT * EXCLUDE (call, whole)
FROM _ebpf_calls
WHERE NOT whole AND (call > 0 OR at_ns > (SELECT watermark_ns FROM ebpf_block));
