-- _ibv_wc_opcode: name of an ibv_wc_opcode (infiniband/verbs.h), else the number as text.
--
-- Arguments: n BIGINT  opcode of a work completion
-- Output: VARCHAR
CREATE OR REPLACE TEMP MACRO _ibv_wc_opcode(n) AS
CASE n
    WHEN 0 THEN 'SEND'
    WHEN 1 THEN 'RDMA_WRITE'
    WHEN 2 THEN 'RDMA_READ'
    WHEN 3 THEN 'COMP_SWAP'
    WHEN 4 THEN 'FETCH_ADD'
    WHEN 128 THEN 'RECV'
    WHEN 129 THEN 'RECV_RDMA_WITH_IMM'
    ELSE n::VARCHAR
END;
