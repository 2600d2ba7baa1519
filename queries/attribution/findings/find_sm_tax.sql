-- find_sm_tax: kernels run slower while a communication kernel holds some of the SMs.
--
-- Inputs: gpu_ops, _sampled_steps, thresholds
-- Output:
--   severity    VARCHAR  warning or critical
--   and rank, node, nic, step, measure, value, threshold, evidence, text, confounders, next of the table findings
-- Assumes: kernels of one name and rank are comparable; a kernel counts as overlapped where a communication kernel covers
--          its start, and as alone where none does. Only kernels that start in sampled steps: warm-up is slower by itself,
--          and medians of a name need no more.
CREATE OR REPLACE TEMP TABLE find_sm_tax AS
WITH communication AS (
    SELECT rank, start_ns, max(end_ns) AS end_ns FROM gpu_ops WHERE op_class = 'comm' GROUP BY rank, start_ns
),
reach AS (
    SELECT rank, start_ns, max(end_ns) OVER (PARTITION BY rank ORDER BY start_ns ROWS UNBOUNDED PRECEDING) AS end_ns
    FROM communication
),
walls AS (
    SELECT rank, sum(end_ns - start_ns) AS wall_ns
    FROM (SELECT DISTINCT rank, start_ns, end_ns FROM _sampled_steps)
    GROUP BY rank
),
chosen AS (
    SELECT k.rank, k.name, k.start_ns, k.end_ns
    FROM (
        SELECT rank, name, start_ns, end_ns, start_ns >> (SELECT any_value(bits) FROM _sampled_steps) AS bin
        FROM gpu_ops
        WHERE op_class = 'compute' AND end_ns > start_ns
    ) AS k
    JOIN _sampled_steps AS b
        ON k.rank = b.rank AND k.bin = b.bin AND k.start_ns >= b.start_ns AND k.start_ns < b.end_ns
),
kernels AS (
    SELECT k.rank, k.name, k.end_ns - k.start_ns AS duration_ns, coalesce(c.end_ns > k.start_ns, false) AS overlapped
    FROM chosen AS k
    ASOF LEFT JOIN reach AS c ON k.rank = c.rank AND k.start_ns >= c.start_ns
),
pairs AS (
    SELECT rank, name,
        median(duration_ns) FILTER (overlapped) AS beside_ns,
        median(duration_ns) FILTER (NOT overlapped) AS alone_ns,
        count(*) FILTER (overlapped) AS n_beside,
        count(*) FILTER (NOT overlapped) AS n_alone
    FROM kernels
    GROUP BY ALL
    HAVING n_beside >= threshold('sm_tax', 'samples') AND n_alone >= threshold('sm_tax', 'samples')
),
taxed AS (
    SELECT p.rank, sum(n_beside * greatest(0, beside_ns - alone_ns)) AS tax_ns,
        sum(n_beside * beside_ns) / sum(n_beside * alone_ns) AS slowdown, arg_max(name, (n_beside * (beside_ns - alone_ns), name)) AS name
    FROM pairs AS p
    GROUP BY p.rank
),
hit AS (
    SELECT t.*, 100 * t.tax_ns / r.wall_ns AS share
    FROM taxed AS t
    JOIN walls AS r ON t.rank = r.rank
    WHERE t.slowdown >= threshold('sm_tax', 'slowdown') AND 100 * t.tax_ns / r.wall_ns >= threshold('sm_tax', 'share')
)
SELECT
    'warning' AS severity,
    arg_max(rank, (share, -rank)) AS rank, NULL::VARCHAR AS node, NULL::VARCHAR AS nic, NULL::BIGINT AS step,
    'duration of kernels beside communication over alone' AS measure,
    arg_max(slowdown, (share, -rank)) AS value,
    threshold('sm_tax', 'slowdown') AS threshold,
    'inferred' AS evidence,
    printf('Kernels take %.2f times as long while a communication kernel is resident: %.1f %% of the ' || step_word() || ' on rank %d (most in %s).',
        arg_max(slowdown, (share, -rank)), max(share), arg_max(rank, (share, -rank)), left(arg_max(name, (share, -rank)), 80)) AS text,
    'excluded: different kernels (compared name by name), too few samples; not excluded: time slicing of one GPU between processes, '
        || 'memory bandwidth rather than SMs, different shapes under one name' AS confounders,
    'fewer communication SMs (NCCL_MAX_CTAS, DeepEP num_sms), copy engines, or GPU-initiated low-SM kernels' AS next
FROM hit
HAVING count(*) > 0;
