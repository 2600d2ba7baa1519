-- _ibv_wr_opcode: name of an ibv_wr_opcode (infiniband/verbs.h), else the number as text.
--
-- Arguments: n BIGINT  opcode of a work request
-- Output: VARCHAR
CREATE OR REPLACE TEMP MACRO _ibv_wr_opcode(n) AS
CASE n
    WHEN 0 THEN 'RDMA_WRITE'
    WHEN 1 THEN 'RDMA_WRITE_WITH_IMM'
    WHEN 2 THEN 'SEND'
    WHEN 3 THEN 'SEND_WITH_IMM'
    WHEN 4 THEN 'RDMA_READ'
    WHEN 5 THEN 'ATOMIC_CMP_AND_SWP'
    WHEN 6 THEN 'ATOMIC_FETCH_AND_ADD'
    ELSE n::VARCHAR
END;
