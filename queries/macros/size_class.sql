-- size_class: the power of two below a size, for histograms.
--
-- Arguments:
--   size_bytes  BIGINT  size, bytes
-- Output: BIGINT: the greatest power of two not above it, bytes; 0 for 0
-- Example: SELECT size_class(bytes) AS from_bytes, count(*) FROM rdma_messages GROUP BY ALL ORDER BY ALL;
CREATE OR REPLACE MACRO size_class(size_bytes) AS
    CASE WHEN size_bytes <= 0 THEN 0 ELSE 1::BIGINT << (length(bin(size_bytes::BIGINT)) - 1)::INTEGER END;
