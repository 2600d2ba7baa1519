"""Waits of a whole run: windows, the sweep, net of compute; GOLDEN G3."""

from __future__ import annotations

from pathlib import Path

from tests.attribution.build import attributed, rows, shares


def g3(tmp_path: Path, **more: object):  # type: ignore[no-untyped-def]
    kernels = [
        {"rank": 0, "start_ns": 0, "end_ns": 100_000},
        {"rank": 0, "start_ns": 100_000, "end_ns": 200_000, "op_class": "comm", "name": "ncclDevKernel_AllReduce"},
        {"rank": 1, "start_ns": 0, "end_ns": 160_000},
        {"rank": 1, "start_ns": 160_000, "end_ns": 200_000, "op_class": "comm", "name": "ncclDevKernel_AllReduce"},
    ]
    ranges = [{"rank": rank, "start_ns": 0, "end_ns": 200_000, "text": "step_0"} for rank in (0, 1)]
    launched = [
        {**k, "launch_start_ns": k["start_ns"], "launch_end_ns": k["start_ns"] + 1, "launch_tid": 1} for k in kernels
    ]
    return attributed(tmp_path, gpu_ops=launched, nvtx=ranges, **more)


def test_g3_the_early_rank_waits_and_the_late_ranks_compute_is_charged(tmp_path: Path) -> None:
    run_dir = g3(tmp_path)
    assert shares(run_dir, 0) == {"compute": 100_000, "wait_straggler": 60_000, "nvlink_transfer": 40_000}
    assert shares(run_dir, 1) == {"compute": 160_000, "nvlink_transfer": 40_000}
    assert rows(run_dir, "SELECT rank, step, kind, culprit_rank, wait_ns, within_clock_error FROM waits") == [
        (0, 0, "straggler", 1, 60_000, False)
    ]
    assert rows(run_dir, "SELECT victim_rank, culprit_rank, step, category, delay_ns, hop FROM delay_cost") == [
        (0, 1, 0, "compute", 60_000, 0)
    ]


def test_what_clock_error_can_explain_is_a_row_without_a_claim(tmp_path: Path) -> None:
    ranks = [{"rank": 0, "node": "a"}, {"rank": 1, "node": "b"}]
    pairs = [
        {"node": x, "other_node": y, "start_ns": -1, "end_ns": 10**18, "error_ns": 60_000}
        for x, y in (("a", "b"), ("b", "a"))
    ]
    run_dir = g3(tmp_path, ranks=ranks, clock_pairs=pairs)
    assert shares(run_dir, 0) == {"compute": 100_000, "comm_unattributed": 100_000}
    assert rows(run_dir, "SELECT rank, kind, culprit_rank, wait_ns, clock_error_ns, within_clock_error FROM waits") == [
        (0, "straggler", 1, 60_000, 60_000, True)
    ]
    assert rows(run_dir, "SELECT * FROM delay_cost") == []


def test_compute_inside_the_wait_is_not_waited(tmp_path: Path) -> None:
    kernels = [
        {"rank": 0, "start_ns": 0, "end_ns": 100, "op_class": "comm", "name": "ncclX"},
        {"rank": 0, "start_ns": 20, "end_ns": 50, "stream": 8},
        {"rank": 1, "start_ns": 80, "end_ns": 100, "op_class": "comm", "name": "ncclX"},
    ]
    ranges = [{"rank": rank, "start_ns": 0, "end_ns": 100, "text": "step_3"} for rank in (0, 1)]
    launched = [
        {**k, "launch_start_ns": k["start_ns"], "launch_end_ns": k["start_ns"] + 1, "launch_tid": 1} for k in kernels
    ]
    run_dir = attributed(tmp_path, gpu_ops=launched, nvtx=ranges)
    assert rows(run_dir, "SELECT rank, step, start_ns, end_ns, wait_ns FROM waits") == [(0, 3, 0, 80, 50)]


def test_a_participant_without_a_usable_file_is_left_out(tmp_path: Path) -> None:
    run_dir = g3(tmp_path, ranks=[{"rank": rank, "pid": rank + 1} for rank in range(3)])
    assert rows(run_dir, "SELECT rank, culprit_rank, wait_ns FROM waits") == [(0, 1, 60_000)]
