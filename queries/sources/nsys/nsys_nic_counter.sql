-- nsys_nic_counter: rows of counters from NIC metrics.
--
-- Inputs: nsys_raw_nic_metric, nsys_raw_net_metric_names, nsys_raw_nic_ids, nsys_raw_nics, nsys_raw_link_types
-- Output: the columns of counters
CREATE OR REPLACE TEMP VIEW nsys_nic_counter AS
SELECT * FROM _nsys_net_counter('nsys_raw_nic_metric', 'NIC ', NULL::VARCHAR);
