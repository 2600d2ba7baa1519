-- _nsys_net_counter: rows of counters from samples of a NIC or a switch.
--
-- Arguments: source TABLE samples: nsys_raw_nic_metric or nsys_raw_switch_metric; prefix VARCHAR what to call a
--   device without a name
-- Output: the columns of counters
-- Assumes: a sample holds for [start, end); it is given at its end
CREATE OR REPLACE TEMP MACRO _nsys_net_counter(source, prefix, default_link) AS TABLE
SELECT
    getvariable('nsys_node')::VARCHAR AS node,
    coalesce(d.name, prefix || m.globalId) AS device,
    NULL::BIGINT AS port,
    coalesce(d.link, default_link) AS link_layer,
    coalesce(n.name, 'metric ' || m.metricsListId || '.' || m.metricsIdx) AS counter,
    nsys_at(coalesce(m."end", m.start)) AS at_ns,
    m.value::DOUBLE AS value
FROM query_table(source) AS m
LEFT JOIN (
    SELECT metricsListId, metricsIdx, min(name) AS name FROM nsys_raw_net_metric_names GROUP BY metricsListId, metricsIdx
) AS n ON n.metricsListId = m.metricsListId AND n.metricsIdx = m.metricsIdx
LEFT JOIN (
    SELECT i.globalId, min(c.name) AS name, min(l.label) AS link
    FROM nsys_raw_nic_ids AS i
    JOIN nsys_raw_nics AS c ON c.nicId = i.nicId
    LEFT JOIN nsys_raw_link_types AS l ON l.id = c.linkLayer
    GROUP BY i.globalId
) AS d ON d.globalId = m.globalId;
