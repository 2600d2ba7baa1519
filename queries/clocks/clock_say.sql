-- clock_say: whether an operation's ends bound its participants' arrivals, so that it may speak of their clocks.
--
-- Arguments:
--   op       VARCHAR  operation, or 'unknown'
--   kernel   VARCHAR  kernel name
--   basis    VARCHAR  how its participants are known (_participants)
-- Output: INTEGER: 2 surely, 1 where nothing better connects two nodes, 0 never
-- Assumes: an operation that everyone needs everyone for ends nowhere before it has begun everywhere. Rooted and
--   point-to-point ones do not (a sender can be done before its receiver has come), nor do one-sided puts. Without
--   an operation's name the kernel's is a hint; it is enough to doubt by, so SendRecv and names that say nothing are 1.
-- Example: SELECT clock_say('AllReduce', 'ncclDevKernel_AllReduce_Sum_bf16_RING_LL', 'run_order');
CREATE OR REPLACE MACRO clock_say(op, kernel, basis) AS
    CASE
        WHEN basis = 'peer' THEN 0
        WHEN regexp_matches(concat_ws(' ', op, kernel), '(?i)nvshmem|deep_?ep|dpsk|dispatch|combine|_put|put_|signal') THEN 0
        WHEN regexp_matches(
            CASE WHEN coalesce(op, 'unknown') = 'unknown' THEN kernel ELSE op END,
            '(?i)all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier'
        ) THEN 2
        WHEN regexp_matches(
            CASE WHEN coalesce(op, 'unknown') = 'unknown' THEN kernel ELSE op END,
            '(?i)broadcast|bcast|(^|[^l_])reduce|(^|[^l_])gather|scatter|^send$|^recv$'
        ) THEN 0
        ELSE 1
    END;
