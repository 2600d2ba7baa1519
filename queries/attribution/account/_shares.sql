-- _shares: time of each category of a step by evidence, before ctl_cpu is divided.
--
-- Inputs: _cells, _slots
-- Output:
--   ordinal        BIGINT   the step, by place in time
--   category       VARCHAR  category, ctl_cpu as a whole
--   evidence       VARCHAR  how it is known
--   attributed_ns  BIGINT   time that it got
--   exclusive_ns   BIGINT   time when nothing else held; its parent, a coarser name of itself, is nothing else
--   inclusive_ns   BIGINT   time when it held
CREATE OR REPLACE TEMP TABLE _shares AS
SELECT
    c.ordinal,
    s.category,
    s.evidence,
    coalesce(sum(c.time_ns) FILTER (c.mask & -c.mask = s.bit), 0)::BIGINT AS attributed_ns,
    coalesce(sum(c.time_ns) FILTER (c.mask & -c.mask = s.bit AND c.mask & ~s.kin = 0), 0)::BIGINT AS exclusive_ns,
    sum(c.time_ns)::BIGINT AS inclusive_ns
FROM _cells AS c
JOIN _slots AS s ON c.mask & s.bit <> 0
GROUP BY c.ordinal, s.category, s.evidence;
