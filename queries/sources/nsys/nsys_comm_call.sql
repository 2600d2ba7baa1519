-- nsys_comm_call: calls of NCCL's API, as its NVTX ranges show them, in groups.
--
-- Inputs: nsys_nvtx_event
-- Output:
--   process, tid, start_ns, end_ns BIGINT
--   op          VARCHAR  operation, for example AllReduce; NULL for calls that start none
--   comm_id     VARCHAR  communicator, from the payload
--   bytes, n_ranks, peer_rank BIGINT  from the payload
--   init        BOOLEAN  the call creates its communicator
--   group_id    BIGINT   calls of a thread with the same number run together
-- Assumes: a group is what lies between the outermost ncclGroupStart and ncclGroupEnd; a call outside is its own
--   group. A capture can begin inside a group, so depth is counted from the lowest level seen so far.
CREATE OR REPLACE TEMP TABLE nsys_comm_call AS
WITH calls AS (
    SELECT
        process, tid, start_ns, end_ns, comm_id, bytes, n_ranks, peer_rank,
        regexp_extract(text, '^p?nccl(\w+)$', 1) AS call
    FROM nsys_nvtx_event
    WHERE event_type = 59 AND end_ns IS NOT NULL AND (starts_with(text, 'nccl') OR starts_with(text, 'pnccl'))
        AND regexp_matches(text, '^p?nccl[A-Z]\w+$')
),
levels AS (
    SELECT
        *,
        sum(CASE call WHEN 'GroupStart' THEN 1 WHEN 'GroupEnd' THEN -1 ELSE 0 END) OVER in_order AS level
    FROM calls
    WINDOW in_order AS (PARTITION BY process, tid ORDER BY start_ns, end_ns DESC, call ROWS UNBOUNDED PRECEDING)
),
depths AS (
    SELECT
        *,
        level - least(0, min(level) OVER (
            PARTITION BY process, tid ORDER BY start_ns, end_ns DESC, call ROWS UNBOUNDED PRECEDING
        )) AS depth
    FROM levels
),
grouped AS (
    SELECT
        *,
        -- A group begins where depth rises from 0, or with a call outside any group.
        sum(CASE WHEN depth_before = 0 AND call <> 'GroupEnd' THEN 1 ELSE 0 END) OVER (
            PARTITION BY process, tid ORDER BY start_ns, end_ns DESC, call ROWS UNBOUNDED PRECEDING
        ) AS group_id
    FROM (
        SELECT
            *,
            coalesce(lag(depth) OVER (PARTITION BY process, tid ORDER BY start_ns, end_ns DESC, call), 0) AS depth_before
        FROM depths
    )
)
SELECT
    process, tid, start_ns, end_ns,
    CASE lower(call)
        WHEN 'allreduce' THEN 'AllReduce'
        WHEN 'allgather' THEN 'AllGather'
        WHEN 'allgatherv' THEN 'AllGatherV'
        WHEN 'reducescatter' THEN 'ReduceScatter'
        WHEN 'broadcast' THEN 'Broadcast'
        WHEN 'bcast' THEN 'Broadcast'
        WHEN 'reduce' THEN 'Reduce'
        WHEN 'alltoall' THEN 'AllToAll'
        WHEN 'alltoallv' THEN 'AllToAllV'
        WHEN 'gather' THEN 'Gather'
        WHEN 'scatter' THEN 'Scatter'
        WHEN 'send' THEN 'Send'
        WHEN 'recv' THEN 'Recv'
        WHEN 'putsignal' THEN 'PutSignal'
        WHEN 'waitsignal' THEN 'WaitSignal'
    END AS op,
    comm_id, bytes, n_ranks, peer_rank,
    regexp_matches(call, '^Comm(?:Init|Split)') AS init,
    group_id
FROM grouped;
