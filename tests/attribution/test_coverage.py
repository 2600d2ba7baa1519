"""Over which ranks a run's cross-rank numbers are computed: facts of the run."""

from __future__ import annotations

from pathlib import Path

from tests.attribution.build import attributed, rows


def test_the_run_says_which_ranks_were_expected_found_missing_and_unusable(tmp_path: Path) -> None:
    kernels = [{"rank": rank, "start_ns": 0, "end_ns": 100, "op_class": "comm", "name": "ncclX"} for rank in (0, 1)]
    run_dir = attributed(
        tmp_path,
        {"ranks": {"expected": 4}},
        gpu_ops=kernels,
        ranks=[{"rank": rank, "pid": rank} for rank in (0, 1, 2)],
        captures=[{"name": "x", "status": "unusable", "reason": "no kernels"}],
    )
    facts = rows(
        run_dir,
        "SELECT name, value FROM run_facts WHERE name LIKE 'ranks%' OR name LIKE 'captures%' OR name LIKE 'collectives%' "
        "OR name = 'waits_over_ranks' ORDER BY name",
    )
    assert facts == [
        ("captures_unusable", "1"),
        ("collectives_by_run_order", "1"),
        ("ranks_expected", "4"),
        ("ranks_found", "3"),
        ("ranks_missing", "3"),
        ("ranks_unusable", "2"),
        ("ranks_usable", "2"),
        ("waits_over_ranks", "0"),
    ]
