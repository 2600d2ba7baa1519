-- nsys_nvtx_event: NVTX rows with their text, staged.
--
-- Inputs: nsys_raw_nvtx_decoded, nsys_string
-- Output:
--   process, tid, domain_id, event_type BIGINT
--   start_ns, end_ns BIGINT  ns since the session's start; end NULL where there is none
--   text, payload, comm_id VARCHAR
--   bytes, n_ranks, peer_rank BIGINT  of an NCCL payload
-- Assumes: an export may keep the text in `text`, in `textId`, or in both from row to row
CREATE OR REPLACE TABLE nsys_nvtx_event AS
SELECT
    nsys_process(e.globalTid) AS process,
    nsys_tid(e.globalTid)::INTEGER AS tid,
    coalesce(e.domainId, 0) AS domain_id,
    e.eventType::UTINYINT AS event_type,
    e.start AS start_ns,
    e."end" AS end_ns,
    coalesce(e.text, s.value) AS text,
    coalesce(e.payload, e.jsonText, j.value) AS payload,
    e.comm_id,
    e.bytes,
    e.n_ranks,
    e.peer_rank
FROM nsys_raw_nvtx_decoded AS e
LEFT JOIN nsys_string AS s ON s.id = e.textId
LEFT JOIN nsys_string AS j ON j.id = e.jsonTextId
WHERE e.eventType BETWEEN 0 AND 255;
