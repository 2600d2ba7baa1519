"""Golden values of the timeline: one rank, worked by hand."""

from __future__ import annotations

from pathlib import Path

from tests.attribution.build import attributed, rows, shares

_STEP = {"start_ns": 0, "text": "step_0"}


def test_G1_each_instant_goes_to_the_first_category_that_holds(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        nvtx=[{**_STEP, "end_ns": 1_000_000}],
        gpu_ops=[
            {"start_ns": 0, "end_ns": 400_000},
            {"start_ns": 600_000, "end_ns": 900_000},
            {"start_ns": 300_000, "end_ns": 700_000, "op_class": "comm", "stream": 8},
            {"start_ns": 880_000, "end_ns": 950_000, "op_class": "copy", "stream": 9},
        ],
    )
    found = rows(
        run_dir, "SELECT category, attributed_ns, exclusive_ns, inclusive_ns, hidden_ns FROM breakdown ORDER BY ALL"
    )
    assert found == [
        ("comm_unattributed", 200_000, 200_000, 400_000, 200_000),
        ("compute", 700_000, 480_000, 700_000, 0),
        ("idle_other", 50_000, 50_000, 50_000, 0),
        ("memcpy", 50_000, 50_000, 70_000, 20_000),
    ]


def test_G2b_without_events_of_the_network_exposed_communication_stays_whole(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        nvtx=[{**_STEP, "end_ns": 30_000}],
        gpu_ops=[
            {"start_ns": 0, "end_ns": 20_000, "op_class": "comm", "stream": 8},
            {"start_ns": 20_000, "end_ns": 30_000},
        ],
    )
    assert shares(run_dir) == {"compute": 10_000, "comm_unattributed": 20_000}
