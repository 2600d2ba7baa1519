"""Debug logs: which lines mean a fallback, in which grade, and which do not."""

from __future__ import annotations

import pytest

GRADES = [
    (
        "cudaHostRegister with IoMemory failed with error=1. We may need to use a fallback path.",
        "nvshmem_doorbell_by_cpu",
        "warning",
    ),
    ("ibgda_nic_mem_gpu_map failed. We may need to use the CPU fallback path.", "nvshmem_doorbell_by_cpu", "warning"),
    (
        "ibgda_alloc_and_map_qp_uar with GPU as handler failed. We may need to enter the CPU fallback path.",
        "nvshmem_doorbell_by_cpu",
        "warning",
    ),
    ("NVSHMEM_IBGDA_NIC_HANDLER=cpu requires GDRCopy.", "nvshmem_nic_handler_needs_gdrcopy", "error"),
    (
        "The system does not support registering the NIC control buffers with DMABUF. Fallback to use either nv_peer_mem or nvidia_peermem.",
        "nvshmem_registration_by_peermem",
        "info",
    ),
    ("init failed for remote transport: ibrc", "nvshmem_transport_init_failed", "error"),
]


@pytest.mark.parametrize(("line", "code", "severity"), GRADES)
def test_each_line_that_means_a_fallback_has_its_grade(read_text, line, code, severity):
    read = read_text(f"/src/ibgda.cpp:812: {line}\nNVSHMEM: all is well\n", "app.log")
    assert read.brief("log_events", "source", "code", "severity", "text") == [
        ("nvshmem", code, severity, f"/src/ibgda.cpp:812: {line}")
    ]


def test_nccl_lines_have_node_rank_and_path(read_text):
    prefix = "n4:12:34 [0] NCCL "
    read = read_text(
        prefix
        + "INFO NCCL_IB_HCA set by environment to =mlx5_0.\n"
        + prefix
        + "INFO SECRET set by environment to x.\n"
        + prefix
        + "INFO Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
        + prefix
        + "INFO Channel 01/0 : 1[1] -> 8[0] [send] via NET/IB/0/GDRDMA\n"
        + prefix
        + "INFO Channel 02/0 : 1[1] -> 8[0] [send] via NET/IB/3\n"
        + prefix
        + "INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read\n"
        + prefix
        + "INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct\n"
        + "[2026-01-31 04:00:00] n4:12:34 [0] transport/net_ib.cc:300 NCCL WARN NET/IB : Got completion from peer with status=12\n",
        "nccl.log",
        ranks={12: 3},
    )
    assert read.brief("log_events", "node", "rank", "source", "code", "severity") == [
        ("n4", 3, "env", "NCCL_IB_HCA", "info"),
        ("n4", 3, "nccl", "nccl_path_net_gdrdma", "info"),
        ("n4", 3, "nccl", "nccl_path_net", "info"),
        ("n4", 3, "nccl", "nccl_path_p2p", "info"),
        ("n4", 3, "nccl", "nccl_path_shm", "info"),
        ("n4", 3, "nccl", "nccl_warn", "warning"),
    ]
    assert read.column("log_events", "text")[0] == "NCCL_IB_HCA==mlx5_0"


def test_a_real_log_says_version_devices_and_that_gdr_is_off(data, read_file):
    read = read_file(data / "nccl-log" / "nccl.log")
    assert (read.capture.tool_version, read.capture.host) == ("2.27.7+cuda13.0", "mew0")
    codes = read.column("log_events", "code")
    assert {"nccl_version", "nccl_net_ib_devices", "nccl_net_selected", "nccl_gdr_disabled"} <= set(codes)
    assert {row["severity"] for row in read.tables["log_events"] if row["code"] == "nccl_gdr_disabled"} == {"warning"}
