"""A communication kernel and what other sources say of it."""

from __future__ import annotations

from typing import Any

from tests.attribution.plain import plain, run


def named(kernels: list[dict[str, Any]], calls: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    gpu_ops = [{"rank": 0, "op_class": "comm", "name": "ncclDevKernel_SendRecv", "stream": 7, **k} for k in kernels]
    connection = plain(gpu_ops=gpu_ops, comm_ops=[{"rank": 0, **call} for call in calls])
    run(connection, "_operations")
    return connection.execute("SELECT op_id, op, comm_id, seq, start_ns FROM _operations ORDER BY op_id").fetchall()


def test_a_kernels_name_never_gives_its_operation() -> None:
    assert named([{"start_ns": 5, "end_ns": 9}], []) == [(0, "unknown", None, None, 5)]


def test_compute_and_inverted_kernels_are_no_operations() -> None:
    assert named([{"start_ns": 9, "end_ns": 5}, {"start_ns": 0, "end_ns": 4, "op_class": "compute"}], []) == []


def test_a_kernel_belongs_to_the_innermost_range_of_its_launch() -> None:
    kernels = [{"start_ns": 500, "end_ns": 600, "launch_start_ns": 20, "launch_end_ns": 25}]
    calls = [
        {"source": "nvtx", "op": "outer", "start_ns": 0, "end_ns": 100},
        {"source": "nvtx", "op": "AllReduce", "comm_id": "c", "seq": 3, "start_ns": 10, "end_ns": 30},
        {"source": "nvtx", "op": "before", "start_ns": 15, "end_ns": 18},
    ]
    assert named(kernels, calls) == [(0, "AllReduce", "c", 3, 500)]


def test_an_arrival_that_is_given_decides() -> None:
    kernels = [{"start_ns": 500, "end_ns": 600, "launch_start_ns": 20}, {"start_ns": 700, "end_ns": 800}]
    calls = [{"source": "nvtx", "op": "AllGather", "start_ns": 10, "end_ns": 30, "arrival_ns": 700}]
    assert named(kernels, calls) == [(0, "unknown", None, None, 500), (1, "AllGather", None, None, 700)]


def test_calls_that_run_ahead_of_their_kernels_go_by_order_not_by_the_latest_start() -> None:
    kernels = [{"start_ns": 100, "end_ns": 200}, {"start_ns": 200, "end_ns": 300}]
    calls = [
        {"source": "nccl_profiler", "op": "AllReduce", "seq": 1, "start_ns": 0, "end_ns": 210},
        {"source": "nccl_profiler", "op": "AllGather", "seq": 2, "start_ns": 1, "end_ns": 310},
    ]
    assert named(kernels, calls) == [(0, "AllReduce", None, 1, 100), (1, "AllGather", None, 2, 200)]


def test_with_unequal_numbers_only_the_longest_overlap_of_both_sides_counts() -> None:
    kernels = [{"start_ns": 100, "end_ns": 200}, {"start_ns": 200, "end_ns": 300}]
    calls = [{"source": "nccl_profiler", "op": "AllGather", "seq": 2, "start_ns": 190, "end_ns": 310}]
    assert named(kernels, calls) == [(0, "unknown", None, None, 100), (1, "AllGather", None, 2, 200)]
