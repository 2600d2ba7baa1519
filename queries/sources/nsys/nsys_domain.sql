-- nsys_domain: names of NVTX domains.
--
-- Inputs: nsys_nvtx_event
-- Output:
--   process     BIGINT   process
--   domain_id   BIGINT   domain id in the process
--   name        VARCHAR  its name
-- Assumes: rows of type 75 create domains; a name may come twice, the first stands
CREATE OR REPLACE TEMP TABLE nsys_domain AS
SELECT process, domain_id, arg_min(text, (start_ns, text)) AS name
FROM nsys_nvtx_event
WHERE event_type = 75 AND text IS NOT NULL
GROUP BY process, domain_id;
