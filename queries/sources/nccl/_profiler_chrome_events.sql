-- _profiler_chrome_events: begin and end events of NCCL's example profiler plugin, from JSON text.
--
-- Inputs: json_lines(line, text)
-- Output:
--   line        BIGINT   order in the file
--   text        VARCHAR  the object
--   good        BOOLEAN  it is JSON
--   name, cat, ph        VARCHAR  as written
--   id, pid     BIGINT
--   at_ns       BIGINT   time on the plugin's clock; NULL for 0.000000, which means none
--   comm_id     VARCHAR  CommHash, unsigned 64 bits, as text
--   seq, rank_in_comm, peer, channel, steps, trans_bytes, count, qp, device   BIGINT
--   datatype    VARCHAR
-- Assumes: µs with a fraction are read as decimals from the text: a double, also the JSON reader's, would round ns away.
CREATE OR REPLACE TEMP TABLE _profiler_chrome_events AS
WITH parsed AS (
    SELECT line, text, CASE WHEN json_valid(text) THEN text::JSON END AS j FROM json_lines
)

SELECT
    line,
    text,
    j IS NOT NULL AS good,
    j ->> '$.name' AS name,
    j ->> '$.cat' AS cat,
    j ->> '$.ph' AS ph,
    try_cast(j ->> '$.id' AS BIGINT) AS id,
    try_cast(j ->> '$.pid' AS BIGINT) AS pid,
    nullif((try_cast(regexp_extract(text, '"ts":\s*"?([0-9.]+)', 1) AS DECIMAL(25, 6)) * 1000)::BIGINT, 0) AS at_ns,
    j ->> '$.args.CommHash' AS comm_id,
    try_cast(j ->> '$.args.SeqNum' AS BIGINT) AS seq,
    try_cast(j ->> '$.args.Rank' AS BIGINT) AS rank_in_comm,
    try_cast(j ->> '$.args.Peer' AS BIGINT) AS peer,
    try_cast(j ->> '$.args.Channel' AS BIGINT) AS channel,
    try_cast(j ->> '$.args.Steps' AS BIGINT) AS steps,
    try_cast(j ->> '$.args.transSize' AS BIGINT) AS trans_bytes,
    try_cast(j ->> '$.args.Count' AS BIGINT) AS count,
    try_cast(j ->> '$.args.qp_num' AS BIGINT) AS qp,
    try_cast(j ->> '$.args.device' AS BIGINT) AS device,
    j ->> '$.args.Datatype' AS datatype
FROM parsed;
