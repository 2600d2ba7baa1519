-- kernel_with_launch: each GPU operation with the API call that launched it and how long it was queued.
--
-- Inputs: gpu_ops, cuda_api
-- Output:
--   run              VARCHAR  run
--   rank             BIGINT   rank
--   device           BIGINT   device index in the process
--   stream           BIGINT   CUDA stream
--   op_class         VARCHAR  compute, comm or copy
--   name             VARCHAR  kernel, or kind of copy
--   start_ns         BIGINT   start on the GPU, ns on the run clock
--   end_ns           BIGINT   end on the GPU, ns on the run clock
--   duration_ns      BIGINT   time on the GPU, ns
--   bytes            BIGINT   bytes copied or set; of the collective where known
--   api              VARCHAR  launching call; NULL where it is not in the capture
--   launch_tid       BIGINT   thread that launched it
--   launch_start_ns  BIGINT   start of the launching call, ns on the run clock
--   launch_end_ns    BIGINT   end of the launching call, ns on the run clock
--   launch_ns        BIGINT   time in the launching call, ns
--   queued_ns        BIGINT   from the end of the launching call to the start on the GPU, ns; negative: it started before
-- Assumes: a correlation id is one call of a rank; of several calls with one id the first by time and name is taken.
-- Example: SELECT name, median(queued_ns) FROM kernel_with_launch WHERE rank = 0 GROUP BY name ORDER BY 2;
CREATE OR REPLACE VIEW kernel_with_launch AS
WITH calls AS (
    SELECT run, rank, correlation_id, arg_min(name, (start_ns, name)) AS api
    FROM cuda_api
    WHERE correlation_id > 0
    GROUP BY ALL
)
SELECT g.run, g.rank, g.device, g.stream, g.op_class, g.name, g.start_ns, g.end_ns, g.end_ns - g.start_ns AS duration_ns,
    g.bytes, c.api, g.launch_tid, g.launch_start_ns, g.launch_end_ns,
    g.launch_end_ns - g.launch_start_ns AS launch_ns, g.start_ns - g.launch_end_ns AS queued_ns
FROM gpu_ops AS g
LEFT JOIN calls AS c ON g.run = c.run AND g.rank = c.rank AND g.correlation_id = c.correlation_id;
