-- _carried_messages: the messages that make up the account of a rank's operations.
--
-- Inputs: _served_messages
-- Output: the rows and columns of _served_messages that count
-- Assumes: one rank. Of several NICs the one whose last completion closes an operation carries it; the others' messages
--          are memo. Messages outside any operation count: they may still be in flight in the next one.
CREATE OR REPLACE TEMP TABLE _carried_messages AS
WITH last_of_nic AS (
    SELECT op_id, nic, max(coalesce(released_ns, exit_ns)) AS last_ns
    FROM _served_messages
    WHERE op_id IS NOT NULL
    GROUP BY ALL
),
carriers AS (
    SELECT op_id, nic
    FROM last_of_nic
    QUALIFY row_number() OVER (PARTITION BY op_id ORDER BY last_ns DESC, nic) = 1
)
SELECT m.*
FROM _served_messages AS m
LEFT JOIN carriers AS c ON m.op_id = c.op_id
WHERE m.op_id IS NULL OR m.nic IS NOT DISTINCT FROM c.nic;
