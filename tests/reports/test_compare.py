"""Two runs side by side."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from pipeline.lake.catalog import find_run
from pipeline.model.errors import ExitCode, GateFailed
from pipeline.reports import compare
from tests.reports.lakes import MS, new_run, put, small

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`base` and `slow`, whose rank 1 is 60 ms later in step 3 than base's 0 ms; `other` has another model."""
    lake = tmp_path_factory.mktemp("lake")
    small(lake, "base", slow_ms=0)
    small(lake, "slow", slow_ms=60)
    put(
        small_run(lake, "slow"),
        "findings",
        [
            {"code": "straggler", "severity": "warning", "text": "late"},
            {"code": "incast", "severity": "info", "text": "x"},
        ],
    )
    return lake


def small_run(lake: Path, run: str) -> compare.RunDir:
    return find_run(lake, run)


@pytest.fixture(scope="module")
def compared(lake: Path) -> compare.Comparison:
    return compare.load(find_run(lake, "base"), find_run(lake, "slow"))


def test_runs_of_one_model_have_equal_mfu_times_step_time(compared: compare.Comparison) -> None:
    assert (compared.base.ideal_ns, compared.candidate.ideal_ns) == pytest.approx((40 * MS, 40 * MS))
    assert compared.same_model is True
    assert compared.mfu_change_points == pytest.approx(100 * 40 / 120 - 40)


def test_a_change_is_candidate_minus_base_with_the_noise_of_the_steps(compared: compare.Comparison) -> None:
    step = compared.step
    assert (step.base_ns, step.candidate_ns, step.change_ns) == (100 * MS, 120 * MS, 20 * MS)
    # base: 100, 100, 100; slow: 100, 100, 160: s² = 1200, standard error 20, two degrees of freedom: t = 4.303.
    assert (step.noise_lo_ns, step.noise_hi_ns) == pytest.approx((20 * MS - 4.303 * 20 * MS, 20 * MS + 4.303 * 20 * MS))
    assert step.beyond_noise is False
    by_name = {x.category: x for x in compared.changes}
    assert by_name["wait_straggler"].change_ns == 10 * MS
    assert by_name["memcpy"].change_ns == 0
    assert by_name["memcpy"].change_points == pytest.approx(100 * 3 / 120 - 3)
    assert by_name["memcpy"].beyond_noise is False


def test_what_appeared_is_named(compared: compare.Comparison) -> None:
    assert compared.differences == (compare.Difference("finding", "incast", "candidate"),)


def test_a_category_that_only_one_run_has_appeared_or_went(lake: Path) -> None:
    run = new_run(lake, "plain")
    put(
        run,
        "steps",
        [
            {"rank": 0, "step": s, "start_ns": s * 100, "end_ns": s * 100 + 100, "source": "nvtx", "complete": True}
            for s in (0, 1)
        ],
    )
    put(
        run,
        "breakdown",
        [
            {"rank": 0, "step": s, "category": "idle_other", "evidence": "measured_nsys", "attributed_ns": 100}
            for s in (0, 1)
        ],
    )
    found = compare.load(find_run(lake, "base"), find_run(lake, "plain"))
    assert {x.category: x.status for x in found.changes if x.category in ("compute", "idle_other")} == {
        "compute": "gone",
        "idle_other": "appeared",
    }
    assert found.same_model is None
    assert found.mfu_change_points is None


def test_another_model_is_said_to_be_one(lake: Path, tmp_path: Path) -> None:
    small(tmp_path, "base", slow_ms=0)
    small(tmp_path, "other", slow_ms=0)
    put(
        find_run(tmp_path, "other"),
        "mfu",
        [
            {
                "scope": "run",
                "category": "mfu",
                "points": 20.0,
                "evidence": "inferred",
                "numerator": "20",
                "denominator": "1",
            }
        ],
    )
    found = compare.load(find_run(tmp_path, "base"), find_run(tmp_path, "other"))
    assert found.same_model is False
    assert "× 0.500" in found.model_note


def test_the_gate_fails_beyond_its_points_with_exit_code_4(compared: compare.Comparison) -> None:
    compare.gate(compared, 7)
    with pytest.raises(
        GateFailed,
        match=r"base → slow: lost 6\.67 MFU points, within the noise of the steps; the gate allows 5; largest growth",
    ) as failure:
        compare.gate(compared, 5)
    assert failure.value.exit_code == ExitCode.GATE_FAILED == 4


def test_a_run_against_itself_changes_nothing(lake: Path) -> None:
    found = compare.load(find_run(lake, "slow"), find_run(lake, "slow"))
    assert [x.change_ns for x in (found.step, *found.changes)] == [0] * (1 + len(found.changes))
    assert found.differences == ()
    compare.gate(found, 0)


@pytest.mark.parametrize(("format", "name"), [("text", "compare.txt"), ("markdown", "compare.md")])
def test_the_comparison_reads_as_the_golden_one(lake: Path, format: str, name: str) -> None:
    assert compare.render(lake, "base", "slow", format) == (GOLDEN / name).read_text(encoding="utf-8")


def test_text_is_at_most_100_columns_wide(lake: Path) -> None:
    assert max(map(len, compare.render(lake, "base", "slow", "text").splitlines())) <= 100


def test_json_and_html_are_whole(lake: Path) -> None:
    assert json.loads(compare.render(lake, "base", "slow", "json"))["schema"] == "mfuloss.compare/1"
    page = compare.render(lake, "base", "slow", "html")
    assert "</html>" in page
    assert "incast" in page


def test_the_noise_interval_holds_the_truth_in_about_95_of_100_trials() -> None:
    source = random.Random(7)
    held = 0
    for _ in range(400):
        base = [source.gauss(100, 5) for _ in range(8)]
        candidate = [source.gauss(103, 9) for _ in range(12)]
        half = compare.welch_half_width(base, candidate)
        assert half is not None
        difference = sum(candidate) / 12 - sum(base) / 8
        held += abs(difference - 3) <= half
    assert 0.92 <= held / 400 <= 0.99
