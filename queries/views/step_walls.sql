-- step_walls: each step of each rank with its duration and whether statistics count it.
--
-- Inputs: steps
-- Output:
--   run       VARCHAR  run
--   rank      BIGINT   rank
--   step      BIGINT   step
--   start_ns  BIGINT   start, ns on the run clock
--   end_ns    BIGINT   end, exclusive, ns on the run clock
--   wall_ns   BIGINT   duration, ns
--   source    VARCHAR  nvtx, inferred or window
--   counted   BOOLEAN  complete and no outlier; where no step of the run is that, all are counted
-- Example: SELECT rank, median(wall_ns) FROM step_walls WHERE counted GROUP BY rank ORDER BY rank;
CREATE OR REPLACE VIEW step_walls AS
SELECT run, rank, step, start_ns, end_ns, end_ns - start_ns AS wall_ns, source,
    coalesce(complete AND NOT outlier, false) OR NOT bool_or(coalesce(complete AND NOT outlier, false)) OVER (PARTITION BY run)
        AS counted
FROM steps
WHERE end_ns > start_ns;
