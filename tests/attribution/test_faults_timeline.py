"""Faults that tools like this one really had, each by its smallest input (shared/FAULTS.md)."""

from __future__ import annotations

from pathlib import Path

from tests.attribution.build import Row, attributed, rows, shares

_STEP: list[Row] = [{"start_ns": 0, "end_ns": 100, "text": "step_0"}]


def test_F01_overlapping_kernels_are_busy_once(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path, nvtx=_STEP, gpu_ops=[{"start_ns": 0, "end_ns": 100, "stream": stream} for stream in (7, 15)]
    )
    assert shares(run_dir) == {"compute": 100}


def test_F02_a_stream_that_is_idle_while_another_runs_is_no_idle_gpu(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        nvtx=_STEP,
        gpu_ops=[
            {"start_ns": 0, "end_ns": 50, "stream": 7},
            {"start_ns": 50, "end_ns": 99, "stream": 8},
            {"start_ns": 99, "end_ns": 100, "stream": 7},
        ],
    )
    assert shares(run_dir) == {"compute": 100}


def test_F03_equal_stream_numbers_of_two_devices_are_two_streams(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        nvtx=[{**_STEP[0], "rank": rank} for rank in (0, 1)],
        gpu_ops=[{"rank": rank, "device": rank, "start_ns": 0, "end_ns": 60, "stream": 17} for rank in (0, 1)],
    )
    assert [shares(run_dir, rank) for rank in (0, 1)] == [{"compute": 60, "idle_other": 40}] * 2


def test_F04_a_gap_that_a_copy_fills_is_a_copy(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        nvtx=_STEP,
        gpu_ops=[
            {"start_ns": 0, "end_ns": 10},
            {"start_ns": 10, "end_ns": 90, "op_class": "copy", "copy_kind": "Host-to-Device"},
            {"start_ns": 90, "end_ns": 100},
        ],
    )
    assert shares(run_dir) == {"compute": 20, "memcpy": 80}


def test_F06_a_synchronising_call_over_a_communication_kernel_is_no_compute(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        nvtx=_STEP,
        gpu_ops=[{"start_ns": 0, "end_ns": 100, "op_class": "comm"}],
        cuda_api=[{"start_ns": 0, "end_ns": 100, "name": "cudaStreamSynchronize"}],
    )
    assert shares(run_dir) == {"comm_unattributed": 100}


def test_F12_a_kernel_that_runs_past_the_next_of_its_stream_counts_once(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        nvtx=[{**_STEP[0], "end_ns": 1_000_000}],
        gpu_ops=[{"start_ns": 0, "end_ns": 1_000_000}, {"start_ns": 10, "end_ns": 20}],
    )
    assert shares(run_dir) == {"compute": 1_000_000}


def test_F14_kernels_of_a_graph_share_one_launch_whose_time_is_charged_once(tmp_path: Path) -> None:
    launch = {"launch_start_ns": 10, "launch_end_ns": 20, "launch_tid": 1, "correlation_id": 5, "graph_id": 1}
    run_dir = attributed(
        tmp_path,
        nvtx=_STEP,
        gpu_ops=[{"start_ns": start, "end_ns": start + 20, "graph_node_id": start, **launch} for start in (30, 55, 80)],
        cuda_api=[{"start_ns": 10, "end_ns": 20, "name": "cudaGraphLaunch", "correlation_id": 5}],
    )
    assert shares(run_dir) == {"host_launch": 10, "gpu_dependency": 30, "compute": 60}


def test_F15_a_kernel_without_a_launch_row_counts_and_idle_before_it_is_not_blamed_on_anyone(tmp_path: Path) -> None:
    run_dir = attributed(tmp_path, nvtx=_STEP, gpu_ops=[{"start_ns": 40, "end_ns": 100, "graph_id": 3}])
    assert shares(run_dir) == {"idle_other": 40, "compute": 60}


def test_F36_a_kernel_without_length_takes_no_time(tmp_path: Path) -> None:
    run_dir = attributed(tmp_path, nvtx=_STEP, gpu_ops=[{"start_ns": 0, "end_ns": 100}, {"start_ns": 50, "end_ns": 50}])
    assert rows(run_dir, "SELECT start_ns, end_ns, category FROM segments") == [(0, 100, "compute")]


def test_an_operation_that_ends_before_it_starts_is_left_out_of_sums(tmp_path: Path) -> None:
    run_dir = attributed(tmp_path, nvtx=_STEP, gpu_ops=[{"start_ns": 0, "end_ns": 60}, {"start_ns": 90, "end_ns": 85}])
    assert shares(run_dir) == {"compute": 60, "idle_other": 40}
