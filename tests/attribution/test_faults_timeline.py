"""Faults that tools like this one really had, each by its smallest input (shared/FAULTS.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.attribution import timeline
from tests.attribution.build import Row, attributed, shares

if TYPE_CHECKING:
    import duckdb

_STEP: list[Row] = [{"start_ns": 0, "end_ns": 100, "text": "step_0"}]


def test_F01_overlapping_kernels_are_busy_once(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(
        database, nvtx=_STEP, gpu_ops=[{"start_ns": 0, "end_ns": 100, "stream": stream} for stream in (7, 15)]
    )
    assert timeline.shares(database) == {"compute": 100}


def test_F02_a_stream_that_is_idle_while_another_runs_is_no_idle_gpu(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(
        database,
        nvtx=_STEP,
        gpu_ops=[
            {"start_ns": 0, "end_ns": 50, "stream": 7},
            {"start_ns": 50, "end_ns": 99, "stream": 8},
            {"start_ns": 99, "end_ns": 100, "stream": 7},
        ],
    )
    assert timeline.shares(database) == {"compute": 100}


def test_F03_equal_stream_numbers_of_two_devices_are_two_streams(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        nvtx=[{**_STEP[0], "rank": rank} for rank in (0, 1)],
        gpu_ops=[{"rank": rank, "device": rank, "start_ns": 0, "end_ns": 60, "stream": 17} for rank in (0, 1)],
    )
    assert [shares(run_dir, rank) for rank in (0, 1)] == [{"compute": 60, "idle_other": 40}] * 2


def test_F04_a_gap_that_a_copy_fills_is_a_copy(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(
        database,
        nvtx=_STEP,
        gpu_ops=[
            {"start_ns": 0, "end_ns": 10},
            {"start_ns": 10, "end_ns": 90, "op_class": "copy", "copy_kind": "Host-to-Device"},
            {"start_ns": 90, "end_ns": 100},
        ],
    )
    assert timeline.shares(database) == {"compute": 20, "memcpy": 80}


def test_F06_a_synchronising_call_over_a_communication_kernel_is_no_compute(
    database: duckdb.DuckDBPyConnection,
) -> None:
    timeline.run_rows(
        database,
        nvtx=_STEP,
        gpu_ops=[{"start_ns": 0, "end_ns": 100, "op_class": "comm"}],
        cuda_api=[{"start_ns": 0, "end_ns": 100, "name": "cudaStreamSynchronize"}],
    )
    assert timeline.shares(database) == {"comm_unattributed": 100}


def test_F12_a_kernel_that_runs_past_the_next_of_its_stream_counts_once(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(
        database,
        nvtx=[{**_STEP[0], "end_ns": 1_000_000}],
        gpu_ops=[{"start_ns": 0, "end_ns": 1_000_000}, {"start_ns": 10, "end_ns": 20}],
    )
    assert timeline.shares(database) == {"compute": 1_000_000}


def test_F14_kernels_of_a_graph_share_one_launch_whose_time_is_charged_once(
    database: duckdb.DuckDBPyConnection,
) -> None:
    launch = {"launch_start_ns": 10, "launch_end_ns": 20, "launch_tid": 1, "correlation_id": 5, "graph_id": 1}
    timeline.run_rows(
        database,
        nvtx=_STEP,
        gpu_ops=[{"start_ns": start, "end_ns": start + 20, "graph_node_id": start, **launch} for start in (30, 55, 80)],
        cuda_api=[{"start_ns": 10, "end_ns": 20, "name": "cudaGraphLaunch", "correlation_id": 5}],
    )
    assert timeline.shares(database) == {"host_launch": 10, "gpu_dependency": 30, "compute": 60}


def test_F15_a_kernel_without_a_launch_row_counts_and_idle_before_it_is_not_blamed_on_anyone(
    database: duckdb.DuckDBPyConnection,
) -> None:
    timeline.run_rows(database, nvtx=_STEP, gpu_ops=[{"start_ns": 40, "end_ns": 100, "graph_id": 3}])
    assert timeline.shares(database) == {"idle_other": 40, "compute": 60}


def test_F36_a_kernel_without_length_takes_no_time(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(database, nvtx=_STEP, gpu_ops=[{"start_ns": 0, "end_ns": 100}, {"start_ns": 50, "end_ns": 50}])
    assert timeline.rows(database, "SELECT start_ns, end_ns, category FROM segments") == [(0, 100, "compute")]


def test_an_operation_that_ends_before_it_starts_is_left_out_of_sums(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(database, nvtx=_STEP, gpu_ops=[{"start_ns": 0, "end_ns": 60}, {"start_ns": 90, "end_ns": 85}])
    assert timeline.shares(database) == {"compute": 60, "idle_other": 40}


@pytest.mark.parametrize("longest_first", [True, False])
def test_of_calls_that_start_together_the_longest_counts(
    database: duckdb.DuckDBPyConnection, longest_first: bool
) -> None:
    """A range ends with the kernel, the read that began with it goes on while the GPU idles."""
    calls = [{"start_ns": 70, "end_ns": end, "name": "read"} for end in (100, 80)]
    timeline.run_rows(
        database,
        nvtx=_STEP,
        gpu_ops=[{"start_ns": 0, "end_ns": 80, "launch_start_ns": 0, "launch_tid": 1}],
        os_calls=calls if longest_first else calls[::-1],
    )
    assert timeline.shares(database) == {"compute": 80, "host_data": 20}
