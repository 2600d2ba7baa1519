-- is_exposed_comm: whether a category is part of exposed communication.
--
-- Arguments:
--   category  VARCHAR  category of attribution
-- Output: BOOLEAN: true for waits, network and the rest of communication kernels
-- Assumes: the same as Category.comm of pipeline.model.categories.
-- Example: SELECT sum(attributed_ns) FROM breakdown WHERE is_exposed_comm(category);
CREATE OR REPLACE MACRO is_exposed_comm(category) AS
    category IN ('wait_straggler', 'wait_pipeline', 'wait_sender', 'wait_credit', 'rdma_transfer', 'ctl_cpu',
        'ctl_schedule', 'ctl_loop', 'ctl_post', 'ctl_wqe', 'ctl_doorbell', 'ctl_fetch', 'ctl_notify', 'blocking_rtt',
        'net_latency', 'net_excess', 'nvlink_transfer', 'comm_unattributed');
