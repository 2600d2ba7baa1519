"""Views over waits and their cost: who is late, how often, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.queries.lake import lake


def cost(victim: int, culprit: int, step: int, category: str, delay: int) -> dict[str, Any]:
    return {
        "victim_rank": victim,
        "culprit_rank": culprit,
        "step": step,
        "category": category,
        "delay_ns": delay,
        "hop": 0,
    }


RANKS = [{"rank": rank, "node": "a", "pid": rank} for rank in range(4)]


def test_the_matrix_of_waits_keeps_what_clock_error_explains_apart(tmp_path: Path) -> None:
    waits = [
        {"rank": 0, "step": 0, "kind": "straggler", "culprit_rank": 1, "wait_ns": 5, "within_clock_error": False},
        {"rank": 0, "step": 1, "kind": "straggler", "culprit_rank": 1, "wait_ns": 7, "within_clock_error": False},
        {"rank": 0, "step": 1, "kind": "straggler", "culprit_rank": 1, "wait_ns": 2, "within_clock_error": True},
    ]
    assert lake(tmp_path, waits=waits).execute("FROM wait_matrix").fetchall() == [("r", 0, 1, "straggler", 2, 12, 1, 2)]


def test_the_first_cause_of_a_step_is_the_rank_that_is_charged_most(tmp_path: Path) -> None:
    costs = [
        cost(0, 2, 5, "compute", 30), cost(1, 2, 5, "host_data", 40), cost(3, 1, 5, "memcpy", 9), cost(0, 1, 6, "memcpy", 1),
    ]  # fmt: skip
    assert lake(tmp_path, delay_cost=costs).execute("FROM delay_matrix").fetchall() == [
        ("r", 5, 2, 70, 2, 40, "host_data", 1),
        ("r", 5, 1, 9, 1, 9, "memcpy", 2),
        ("r", 6, 1, 1, 1, 1, "memcpy", 1),
    ]


def test_one_late_rank_stands_out_though_the_median_deviation_is_zero(tmp_path: Path) -> None:
    costs = [cost(victim, 3, step, "host_launch", 100) for victim in (0, 1, 2) for step in (0, 1)]
    found = lake(tmp_path, ranks=RANKS, delay_cost=costs).execute(
        "SELECT rank, delay_ns, share, steps_late, persistence, round(robust_z, 3), class FROM late_ranks"
    )
    # The mean deviation from the median is 600 / 4.
    assert found.fetchall() == [
        (0, 0, 0.0, 0, 0.0, 0.0, None),
        (1, 0, 0.0, 0, 0.0, 0.0, None),
        (2, 0, 0.0, 0, 0.0, 0.0, None),
        (3, 600, 1.0, 2, 1.0, round(600 / (1.2533 * 150), 3), "late_launch"),
    ]


@pytest.mark.parametrize(
    ("attention_ns", "expert_ns", "expected"), [(140, 130, "slower_kernels"), (100, 200, "uneven_work")]
)
def test_compute_that_is_late_is_slow_in_all_kernels_or_uneven_in_some(
    tmp_path: Path, attention_ns: int, expert_ns: int, expected: str
) -> None:
    kernels = [
        {"rank": rank, "op_class": "compute", "name": name, "start_ns": 0, "end_ns": late_ns if rank == 3 else 100}
        for rank in range(4)
        for name, late_ns in (("attention", attention_ns), ("expert", expert_ns))
    ]
    found = lake(tmp_path, ranks=RANKS, delay_cost=[cost(0, 3, 0, "compute", 50)], gpu_ops=kernels)
    assert found.execute("SELECT class FROM late_ranks WHERE rank = 3").fetchall() == [(expected,)]


def test_without_waits_every_rank_has_a_row_and_no_class(tmp_path: Path) -> None:
    found = lake(tmp_path, ranks=RANKS[:2]).execute(
        "SELECT rank, delay_ns, persistence, robust_z, class FROM late_ranks"
    )
    assert found.fetchall() == [(0, 0, None, None, None), (1, 0, None, None, None)]


def test_coverage_says_which_ranks_are_there_missing_and_unusable(tmp_path: Path) -> None:
    found = lake(
        tmp_path,
        ranks=[{"rank": 0}, {"rank": 1}, {"rank": 3}],
        gpu_ops=[{"rank": 0, "start_ns": 0, "end_ns": 1}, {"rank": 1, "start_ns": 0, "end_ns": 1}],
        steps=[
            {"rank": 1, "step": step, "start_ns": step, "end_ns": step + 1, "complete": step not in (0, 2, 4)}
            for step in range(5)
        ],
        captures=[
            {"name": "a", "status": "ok"},
            {"name": "b", "status": "partial"},
            {"name": "c", "status": "unusable"},
        ],
        waits=[{"rank": 0, "culprit_rank": 1, "wait_ns": 1, "within_clock_error": False}],
        clock_offsets=[{"node": "n", "status": "unaligned"}],
        run_facts=[{"name": "ranks_expected", "value": "5"}],
    ).execute("SELECT * EXCLUDE (run) FROM coverage")
    assert found.fetchall() == [(5, 3, 2, [2, 4], [3], [1], 1, ["n"], 3, ["b"], ["c"])]
