-- _links: beta, base round trip and fetch time of each NIC, as the account of its messages uses them.
--
-- Inputs: _devices, _fit_samples, fits, run_config
-- Output:
--   node              VARCHAR  node
--   nic               VARCHAR  device; NULL where unknown
--   beta_bytes_per_s  BIGINT   payload bandwidth, one way, bytes/s; NULL: unidentified
--   beta_source       VARCHAR  run_toml or fit; NULL: unidentified
--   rtt0_ns           BIGINT   base round trip of an empty message, ns; NULL: unknown
--   rtt0_lo_ns        BIGINT   it is no less, ns; NULL: given, or unknown
--   rtt0_hi_ns        BIGINT   it is no more, ns; NULL: given, or unknown
--   fetch_ns          BIGINT   time to fetch a work request, ns; NULL: not given
-- Assumes: rtt0 is the 5th percentile of flight - fetch - ceil(bytes / beta) over messages that found nothing in flight
--          (an observed value, weighted by what each sampled row stands for). Its interval is the 95 % one of that percentile
--          for the number of rows, and reaches as far below the least seen as the percentile lies above it: each
--          flight has something on top of the base. Of several fits the one with most messages
--          gives a NIC's beta.
CREATE OR REPLACE TEMP TABLE _links AS
WITH devices AS (
    SELECT DISTINCT node, nic FROM _devices
),
fitted AS (
    SELECT node, nic, round(beta_bytes_per_s)::BIGINT AS beta_bytes_per_s
    FROM fits
    WHERE beta_bytes_per_s >= 1 AND beta_source = 'fit'
    QUALIFY row_number() OVER (PARTITION BY node, nic ORDER BY n DESC, op, peer_class) = 1
),
rated AS (
    SELECT
        d.node,
        d.nic,
        coalesce(round(c.beta_bytes_per_s)::BIGINT, f.beta_bytes_per_s) AS beta_bytes_per_s,
        CASE WHEN c.beta_bytes_per_s IS NOT NULL THEN 'run_toml' WHEN f.node IS NOT NULL THEN 'fit' END AS beta_source,
        c.rtt0_ns,
        c.fetch_ns
    FROM devices AS d
    CROSS JOIN run_config AS c
    LEFT JOIN fitted AS f ON d.node IS NOT DISTINCT FROM f.node AND d.nic IS NOT DISTINCT FROM f.nic
),
rests AS (
    SELECT
        r.node,
        r.nic,
        greatest(
            0,
            s.flight_ns - coalesce(r.fetch_ns, 0) - ceil(s.bytes * 1e9 / r.beta_bytes_per_s)::BIGINT
        ) AS rest_ns,
        s.weight
    FROM rated AS r
    JOIN _fit_samples AS s ON r.node IS NOT DISTINCT FROM s.node AND r.nic IS NOT DISTINCT FROM s.nic
    WHERE s.kind IN ('alone', 'followed') AND r.beta_bytes_per_s IS NOT NULL
),
cumulated AS (
    SELECT
        node,
        nic,
        rest_ns,
        sum(weight) OVER (PARTITION BY node, nic ORDER BY rest_ns) AS up_to,
        sum(weight) OVER (PARTITION BY node, nic) AS total,
        count(*) OVER (PARTITION BY node, nic) AS n
    FROM rests
),
base AS (
    SELECT
        node,
        nic,
        min(rest_ns) AS least_ns,
        min(rest_ns) FILTER (up_to >= 0.05 * total) AS rtt0_ns,
        -- Of n observations the share that lies below the true 5th percentile is 0.05 +- 1.96 sqrt(0.05 0.95 / n).
        min(rest_ns) FILTER (up_to >= least(1, 0.05 + 0.43 / sqrt(n)) * total) AS rtt0_hi_ns
    FROM cumulated
    GROUP BY ALL
)
SELECT
    r.node,
    r.nic,
    r.beta_bytes_per_s,
    r.beta_source,
    coalesce(r.rtt0_ns, b.rtt0_ns) AS rtt0_ns,
    CASE WHEN r.rtt0_ns IS NULL THEN greatest(0, 2 * b.least_ns - b.rtt0_ns) END AS rtt0_lo_ns,
    CASE WHEN r.rtt0_ns IS NULL THEN b.rtt0_hi_ns END AS rtt0_hi_ns,
    r.fetch_ns
FROM rated AS r
LEFT JOIN base AS b ON r.node IS NOT DISTINCT FROM b.node AND r.nic IS NOT DISTINCT FROM b.nic
ORDER BY r.node, r.nic;
