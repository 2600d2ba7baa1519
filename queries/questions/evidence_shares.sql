-- evidence_shares: how much of the step time is measured, inferred, modelled or assumed.
--
-- Inputs: breakdown
-- Arguments:
--   in_run  VARCHAR  one run; NULL: all
-- Output:
--   run            VARCHAR  run
--   evidence       VARCHAR  how it is known
--   attributed_ns  BIGINT   time of all steps of all ranks, ns
--   share_percent  DOUBLE   part of the run's, %
-- Example: FROM evidence_shares();
CREATE OR REPLACE MACRO evidence_shares(in_run := NULL) AS TABLE
SELECT b.run, b.evidence, sum(b.attributed_ns)::BIGINT AS attributed_ns,
    100.0 * sum(b.attributed_ns) / nullif(sum(sum(b.attributed_ns)) OVER (PARTITION BY b.run), 0) AS share_percent
FROM breakdown AS b
WHERE in_run IS NULL OR b.run = in_run
GROUP BY b.run, b.evidence
ORDER BY b.run, attributed_ns DESC, b.evidence;
