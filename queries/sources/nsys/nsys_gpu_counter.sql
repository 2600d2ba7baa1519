-- nsys_gpu_counter: rows of counters from GPU metrics.
--
-- Inputs: nsys_raw_gpu_metrics, nsys_raw_gpu_metric_names
-- Output: the columns of counters
-- Assumes: the low byte of typeId is the GPU's index; metric ids differ between versions, names don't
CREATE OR REPLACE TEMP VIEW nsys_gpu_counter AS
SELECT
    getvariable('nsys_node')::VARCHAR AS node,
    'GPU' || (m.typeId & 255) AS device,
    NULL::BIGINT AS port,
    NULL::VARCHAR AS link_layer,
    coalesce(n.name, 'metric ' || m.metricId) AS counter,
    nsys_at(m.timestamp) AS at_ns,
    m.value::DOUBLE AS value
FROM nsys_raw_gpu_metrics AS m
LEFT JOIN (
    SELECT typeId, metricId, min(metricName) AS name FROM nsys_raw_gpu_metric_names GROUP BY typeId, metricId
) AS n ON n.typeId = m.typeId AND n.metricId = m.metricId;
