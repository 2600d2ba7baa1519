-- _gpu_frames: what kinds of operation are resident in the GPU's busy periods.
--
-- Inputs: _gpu_periods, _mixed_frames
-- Output:
--   start_ns  BIGINT    start of the frame
--   end_ns    BIGINT    end; frames are disjoint
--   kinds     UTINYINT  1 compute + 2 communication + 4 copy or memset
CREATE OR REPLACE TEMP VIEW _gpu_frames AS
SELECT start_ns, end_ns, kinds FROM _gpu_periods WHERE kinds <> 0 AND end_ns > start_ns
UNION ALL
SELECT start_ns, end_ns, kinds FROM _mixed_frames;
