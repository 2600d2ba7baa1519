-- _nccl_type_bytes: bytes of an NCCL data type; NULL for one that is not known.
--
-- Arguments: name VARCHAR  for example ncclFloat32
-- Output: INTEGER
CREATE OR REPLACE TEMP MACRO _nccl_type_bytes(name) AS
CASE
    WHEN name IN ('ncclInt8', 'ncclChar', 'ncclUint8', 'ncclFloat8e4m3', 'ncclFloat8e5m2') THEN 1
    WHEN name IN ('ncclFloat16', 'ncclHalf', 'ncclBfloat16') THEN 2
    WHEN name IN ('ncclInt32', 'ncclInt', 'ncclUint32', 'ncclFloat32', 'ncclFloat') THEN 4
    WHEN name IN ('ncclInt64', 'ncclUint64', 'ncclFloat64', 'ncclDouble') THEN 8
END;
