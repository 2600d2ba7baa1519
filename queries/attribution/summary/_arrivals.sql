-- _arrivals: who takes part in each collective, and when on its own time, collectives in the order of their last arrival.
--
-- Inputs: _local_times, _participants
-- Output:
--   place           BIGINT  the collective, from 0
--   rank            BIGINT  participant
--   level           BIGINT  as in _local_times
--   end_ns          BIGINT  its operation ends
--   local_start_ns  BIGINT  it arrives, on its own time
--   local_end_ns    BIGINT  its operation ends, on its own time
CREATE OR REPLACE TEMP TABLE _arrivals AS
SELECT
    dense_rank() OVER (ORDER BY last_ns, instance_id) - 1 AS place,
    rank,
    level,
    end_ns,
    local_start_ns,
    local_end_ns
FROM (
    SELECT t.*, p.instance_id, max(t.start_ns) OVER (PARTITION BY p.instance_id) AS last_ns
    FROM _local_times AS t
    JOIN _participants AS p USING (rank, op_id)
)
ORDER BY level, place, rank, end_ns;
