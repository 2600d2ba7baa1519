"""Every real Nsight Systems export here is read, or refused, as its origin leads one to expect."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from pipeline.model.capture import Status
from pipeline.model.errors import UnusableInput
from tests.sources import nsys

# file: status, kernels, copies and memsets, GPU processes, NVTX ranges, operations of communication kernels by name
REAL = {
    "h200/doorbell_old.sqlite": (Status.OK, 2011, 77, 1, 20, {}),
    "h200/graphnode_new.sqlite": (Status.OK, 3433, 1926, 1, 119, {}),
    "h200/mini_old.sqlite": (Status.OK, 447, 29, 1, 84, {}),
    "h200/rank0_new.sqlite": (Status.OK, 1363, 454, 1, 183, {"AllReduce": 36, "AllToAll": 9}),
    "h200/rank1_new.sqlite": (Status.OK, 1363, 454, 1, 183, {"AllReduce": 36, "AllToAll": 9}),
    "h200/train_new.sqlite": (Status.OK, 3669, 2036, 1, 313, {}),
    "h200/train_old.sqlite": (Status.OK, 3669, 2036, 1, 313, {}),
    "public/nsys-sqlite/aws-gpu/report2.sqlite": (Status.OK, 1, 2370, 1, 0, {}),
    "public/nsys-sqlite/butter-cuda/report1.sqlite": (Status.UNUSABLE, 0, 3, 1, 0, {}),
    "public/nsys-sqlite/dynamicvit/nsys_profile.sqlite": (Status.UNUSABLE, 0, 0, 0, 0, {}),
    "public/nsys-sqlite/efficient-centerformer/poolformer.sqlite": (Status.UNUSABLE, 0, 0, 0, 21996, {}),
    "public/nsys-sqlite/lighttransport-gemm/profile.sqlite": (Status.UNUSABLE, 0, 0, 0, 0, {}),
    "public/nsys-sqlite/nsys-ai/mfu_2gpu_after.sqlite": (
        Status.OK, 3587, 1146, 2, 17113, {"SendRecv": 60, "unknown": 2},
    ),
    "public/nsys-sqlite/nsys-ai/mock.sqlite": (Status.OK, 2, 1, 1, 0, {}),
    "public/nsys-sqlite/nways-jacobi/jacobi_report.sqlite": (Status.OK, 1001, 4003, 1, 2, {}),
    "public/nsys-sqlite/pipit-perlmutter/saxpy-mpi-cuda_nsys_perlmutter0.sqlite": (Status.OK, 5, 15, 1, 22, {}),
    "public/nsys-sqlite/test-cuda/report1.sqlite": (Status.OK, 4, 12, 1, 0, {}),
}  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", REAL)
def test_a_real_export_has_the_status_kernels_processes_ranges_and_operations_that_it_holds(
    shared: Path, name: str
) -> None:
    capture = nsys.inspect(shared / "real" / name)
    found = nsys.rows(shared / "real" / name)
    ops = found.get("gpu_ops", [])
    assert (
        capture.status,
        sum(op["op_class"] != "copy" for op in ops),
        sum(op["op_class"] == "copy" for op in ops),
        len(capture.processes),
        len(found.get("nvtx", [])),
        dict(Counter(op["comm_op"] for op in ops if op["op_class"] == "comm")),
    ) == REAL[name]


@pytest.mark.shared
def test_the_table_of_real_exports_is_complete(shared: Path) -> None:
    there = {
        str(path.relative_to(shared / "real"))
        for folder in ("h200", "public/nsys-sqlite")
        for path in (shared / "real" / folder).rglob("*.sqlite")
    }
    refused = {
        "public/nsys-sqlite/lfs-pointer/nsys_report.sqlite",
        "public/nsys-sqlite/pipit-perlmutter/test.sqlite",
    }
    assert there == set(REAL) | refused


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("lfs-pointer/nsys_report.sqlite", "a Git LFS pointer"),
        ("pipit-perlmutter/test.sqlite", "not an export of Nsight Systems"),
    ],
)
def test_what_is_no_export_is_refused_in_one_line_that_says_what_it_is(shared: Path, name: str, what: str) -> None:
    with pytest.raises(UnusableInput, match=what):
        nsys.inspect(shared / "real/public/nsys-sqlite" / name)


@pytest.mark.shared
def test_in_a_report_of_two_processes_no_kernel_is_joined_to_the_other_ones_launch(shared: Path) -> None:
    found = nsys.rows(shared / "real/public/nsys-sqlite/nsys-ai/mfu_2gpu_after.sqlite")
    kernels = [op for op in found["gpu_ops"] if op["op_class"] != "copy"]
    launches = {(c["rank"], c["tid"], c["start_ns"], c["end_ns"], c["correlation_id"]) for c in found["cuda_api"]}
    threads = {rank: {c["tid"] for c in found["cuda_api"] if c["rank"] == rank} for rank in (0, 1)}
    launched = [k for k in kernels if k["launch_start_ns"] is not None]
    assert Counter(k["rank"] for k in kernels) == {0: 1793, 1: 1794}
    assert sum("SendRecv" in k["name"] for k in kernels) == 62
    assert not threads[0] & threads[1]
    assert all(
        (k["rank"], k["launch_tid"], k["launch_start_ns"], k["launch_end_ns"], k["correlation_id"]) in launches
        for k in launched
    )
    assert len(launched) == 3587 - 10


@pytest.mark.shared
def test_nothing_of_an_environment_but_the_allow_list_reaches_the_lake(shared: Path) -> None:
    path = shared / "real/public/nsys-sqlite/pipit-perlmutter/saxpy-mpi-cuda_nsys_perlmutter0.sqlite"
    found = nsys.rows(path)
    env = {row["code"] for row in found["log_events"] if row["source"] == "env"}
    assert env == {
        "NCCL_NET_GDR_LEVEL", "NCCL_SOCKET_IFNAME", "PMI_RANK", "PMI_SIZE", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_PROCID",
    }  # fmt: skip
    everything = str(found)
    assert [word for word in ("SLURM_JOB_USER", "CRAY_MPICH", "ocankur", "HDF5_USE") if word in everything] == []
