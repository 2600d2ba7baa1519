-- _source_facts: what the captures of this run lack, and what that costs the answer; where its steps come from.
--
-- Inputs: _counted_steps, breakdown, gpu_ops, cuda_api, nvtx, os_calls, thread_states, rdma_posts, comm_phases, steps
-- Output:
--   name   VARCHAR  name of the fact
--   value  VARCHAR  its value as text
--   text   VARCHAR  what it means
CREATE OR REPLACE TEMP TABLE _source_facts AS
WITH source (name, present, costs) AS (
    VALUES
        (
            'launches',
            EXISTS (FROM gpu_ops WHERE launch_start_ns IS NOT NULL),
            'no launch calls: idle time of the GPU is idle_other, and steps are cut at the ranges of the CPU'
        ),
        (
            'os_calls',
            EXISTS (FROM os_calls) OR EXISTS (FROM thread_states),
            'no OS calls and no thread states: a blocked launch thread looks like one that runs (host_launch)'
        ),
        (
            'rdma_posts',
            EXISTS (FROM rdma_posts) OR NOT EXISTS (FROM gpu_ops WHERE op_class = 'comm'),
            'no eBPF or profiler events: what the network and its CPU proxy do inside communication is comm_unattributed'
        ),
        (
            'comm_phases',
            EXISTS (FROM comm_phases) OR NOT EXISTS (FROM gpu_ops WHERE op_class = 'comm'),
            'no NCCL profiler: ctl_notify and wait_credit are not told apart from comm_unattributed'
        )
),
carried AS (
    SELECT b.evidence, sum(b.attributed_ns) AS time_ns
    FROM breakdown AS b
    JOIN _counted_steps AS c ON c.rank = b.rank AND c.step = b.step
    GROUP BY b.evidence
)
SELECT 'missing_' || name AS name, 'missing' AS value, costs AS text FROM source WHERE NOT present
UNION ALL
SELECT
    'share_' || evidence || '_percent',
    printf('%.6f', 100 * time_ns / sum(time_ns) OVER ()),
    'share of the counted wall time that is ' || evidence
FROM carried
UNION ALL
SELECT
    'steps_' || source,
    count(*)::VARCHAR,
    CASE source
        WHEN 'nvtx' THEN 'steps from NVTX ranges'
        WHEN 'inferred' THEN 'steps guessed from the period of kernel names or from the optimizer, confidence '
            || printf('%.2f', min(confidence))
        ELSE 'no steps were found: windows of equal length, which claim nothing about steps'
    END
FROM steps
GROUP BY source
UNION ALL
SELECT
    'empty_steps',
    count(*)::VARCHAR,
    'steps of a rank in which the GPU did nothing'
FROM (
    SELECT s.rank, s.step
    FROM steps AS s
    LEFT JOIN breakdown AS b
        ON b.rank = s.rank AND b.step = s.step AND b.category IN ('compute', 'comm_unattributed', 'memcpy')
    GROUP BY s.rank, s.step
    HAVING coalesce(sum(b.inclusive_ns), 0) = 0
)
HAVING count(*) > 0;
