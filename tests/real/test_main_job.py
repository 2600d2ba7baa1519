"""The main job on real captures: injected stalls come out where they were put in, and everything adds up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.real.conftest import Query

# Computed independently from the exports with the cuts of the contract: ms of GPU idle in steps 1 to 13.
IDLE_MS = [1.50, 1.60, 1.91, 32.19, 17.68, 2.28, 6.99, 28.23, 70.34, 1.97, 4.15, 2.11, 1.53]
IDLE = "category IN ('gpu_dependency', 'idle_other') OR starts_with(category, 'host_')"
TRAINING = ["train_new", "train_old"]


def _ms_by_step(ask: Query, where: str) -> list[float]:
    rows = ask(
        f"SELECT step, sum(attributed_ns) FILTER (WHERE {where}) / 1e6 FROM breakdown WHERE step > 0 GROUP BY step ORDER BY step"
    )
    return [row[1] or 0.0 for row in rows]


@pytest.fixture(params=TRAINING)
def training(request: pytest.FixtureRequest) -> Query:
    ask: Query = request.getfixturevalue(request.param)
    return ask


def test_there_are_fourteen_steps(training: Query) -> None:
    assert list(range(14)) == [step for (step,) in training("SELECT step FROM steps ORDER BY step")]


def test_gpu_idle_of_each_step_is_what_an_independent_count_gives(train_new: Query) -> None:
    assert [round(ms, 2) for ms in _ms_by_step(train_new, IDLE)] == IDLE_MS


def test_kernels_take_what_they_take(train_new: Query) -> None:
    compute = _ms_by_step(train_new, "category = 'compute'")
    assert round(compute.pop(9), 2) == 36.98
    assert (round(min(compute), 2), 0) <= (23.97, 24.47)
    assert min(compute) >= 23.965
    assert max(compute) <= 24.475


def test_copies_are_exposed_where_they_were_injected(train_new: Query) -> None:
    copies = _ms_by_step(train_new, "category = 'memcpy'")
    assert round(copies[5], 2) == 32.69
    assert round(copies[6], 2) == 0.67
    assert all(0.385 <= ms < 0.405 for step, ms in enumerate(copies, 1) if step not in (6, 7))


def test_clean_steps_reach_the_mfu_that_the_program_measured(train_new: Query) -> None:
    truth = json.loads((ROOT / "tests" / "data" / "h200" / "train_new.truth.json").read_text())
    measured = {s["step"]: s["mfu"] for s in truth["steps"]}
    rows = train_new(
        "SELECT step, points / 100 FROM mfu WHERE scope = 'step' AND category = 'mfu' AND rank = 0 AND step IN (1, 2, 3, 12, 13)"
    )
    assert len(rows) == 5
    for step, mfu in rows:
        assert mfu == pytest.approx(measured[step], abs=0.005)
        assert 0.45 <= mfu <= 0.47


# What the truth file says was injected, and the categories that must carry it.
STALLS = [
    (4, ("host_data",)),
    (5, ("host_launch",)),
    (6, ("memcpy",)),
    (7, ("gpu_dependency", "host_sync", "host_launch")),
    (8, ("host_data",)),
    (9, ("host_launch", "host_other")),
    (10, ("compute",)),
    (11, ("host_sync", "host_launch")),
]


@pytest.mark.parametrize(("step", "categories"), STALLS)
def test_each_stall_is_in_its_step_and_its_category(training: Query, step: int, categories: tuple[str, ...]) -> None:
    truth = json.loads((ROOT / "tests" / "data" / "h200" / "train_new.truth.json").read_text())
    stall_ms = truth["steps"][step]["stall"]["host_ms"]
    listed = ", ".join(f"'{category}'" for category in categories)
    [(more,)] = training(
        f"""WITH cell AS (SELECT step, sum(attributed_ns) / 1e6 AS ms FROM breakdown WHERE category IN ({listed}) GROUP BY step)
            SELECT (SELECT ms FROM cell WHERE step = {step}) - (SELECT median(ms) FROM cell WHERE step IN (1, 2, 3, 12, 13))"""
    )
    # A stall hides behind kernels that were launched before it: at most one clean step's worth, 27 ms.
    assert 0.45 * stall_ms <= more <= 1.25 * stall_ms + 0.5, (stall_ms, more)


@pytest.mark.parametrize("lake", [*TRAINING, "two_ranks"])
def test_the_parts_add_up_to_the_step_exactly(request: pytest.FixtureRequest, lake: str) -> None:
    ask: Query = request.getfixturevalue(lake)
    assert (
        ask(
            """SELECT s.rank, s.step, s.end_ns - s.start_ns AS wall_ns, b.ns, g.ns FROM steps s
           LEFT JOIN (SELECT rank, step, sum(attributed_ns) AS ns FROM breakdown GROUP BY ALL) b USING (rank, step)
           LEFT JOIN (SELECT rank, step, sum(end_ns - start_ns) AS ns FROM segments GROUP BY ALL) g USING (rank, step)
           WHERE wall_ns IS DISTINCT FROM b.ns OR wall_ns IS DISTINCT FROM g.ns"""
        )
        == []
    )
    assert ask(
        """SELECT count(*) FROM (SELECT start_ns, lag(end_ns) OVER (PARTITION BY rank ORDER BY start_ns, end_ns) AS before
           FROM segments) WHERE start_ns <> before"""
    ) == [(0,)]
    assert ask(
        "SELECT count(*) FROM breakdown WHERE attributed_ns > inclusive_ns OR exclusive_ns > attributed_ns OR hidden_ns < 0"
    ) == [(0,)]


def test_points_add_up_to_a_hundred_exactly(train_new: Query) -> None:
    from fractions import Fraction

    totals: dict[tuple, Fraction] = {}
    for scope, rank, step, numerator, denominator in train_new(
        "SELECT scope, rank, step, numerator, denominator FROM mfu"
    ):
        key = (scope, rank, step)
        totals[key] = totals.get(key, Fraction(0)) + Fraction(int(numerator), int(denominator))
    assert {Fraction(100)} == set(totals.values())
    assert len(totals) + 1 >= 1 + 1 + 14


def test_two_ranks_of_one_machine_and_the_late_one(two_ranks: Query) -> None:
    assert two_ranks("SELECT rank FROM ranks ORDER BY rank") == [(0,), (1,)]
    [(comm, nccl)] = two_ranks(
        "SELECT count(*) FILTER (WHERE op_class = 'comm'), count(*) FILTER (WHERE name LIKE 'ncclDevKernel%') FROM gpu_ops"
    )
    assert comm == nccl > 0
    # Delayed by its host in steps 3, 5 and 6 (truth: sleep, spin, fsync after the optimizer)...
    delayed = two_ranks(
        """SELECT step FROM breakdown WHERE rank = 1 AND step BETWEEN 1 AND 8 AND starts_with(category, 'host_')
           GROUP BY step HAVING sum(attributed_ns) > 10e6 ORDER BY step"""
    )
    assert delayed == [(3,), (5,), (6,)]
    # ... and rank 0 waits for it there; for the fsync at the tail of step 6 in the first collective of step 7.
    waited = two_ranks(
        """SELECT step FROM waits WHERE rank = 0 AND culprit_rank = 1 AND kind = 'straggler' AND step >= 2
           AND NOT within_clock_error GROUP BY step HAVING max(wait_ns) > 10e6 ORDER BY step"""
    )
    assert waited == [(3,), (5,), (7,)]
    charged = two_ranks(
        """SELECT step, arg_max(category, delay_ns) FROM (SELECT step, category, sum(delay_ns) AS delay_ns FROM delay_cost
           WHERE victim_rank = 0 AND culprit_rank = 1 AND step IN (3, 5) GROUP BY ALL) GROUP BY step ORDER BY step"""
    )
    assert charged == [(3, "host_launch"), (5, "host_launch")]


def test_messages_pair_first_in_first_out_and_only_stop_and_wait_blocks(rdma_proxy: Query) -> None:
    rows = rdma_proxy(
        """SELECT qp, opcode_class, count(*), count(complete_ns), sum(blocked::INT) FROM rdma_messages
           GROUP BY ALL ORDER BY qp, opcode_class"""
    )
    by = {(qp, kind): (n, done, blocked) for qp, kind, n, done, blocked in rows}
    assert by[0x2B2, "atomic"] == (300, 300, 300)  # phase b, signal
    assert by[0x2B2, "write"] == (300, 300, 299)  # phase b, put: the first one waits for nothing
    assert by[0x3C3, "atomic"] == (300, 300, 0)
    assert by[0x3C3, "write"] == (300, 300, 0)
    assert by[0x4D4, "write"] == (300, 300, 0)  # phase d, chains
    assert by[0x1A1, "write"][:2] == (300, 300)


def test_a_second_ingest_changes_nothing(tmp_path: Path) -> None:
    import pipeline

    source = ROOT / "sample_traces" / "rdma_proxy"
    first = pipeline.ingest([str(source)], tmp_path / "lake", jobs=1)
    before = {p: p.stat().st_ino for p in (tmp_path / "lake").rglob("*.parquet")}
    second = pipeline.ingest([str(source)], tmp_path / "lake", jobs=1)
    assert (first.changed, second.changed) == (True, False)
    assert before == {p: p.stat().st_ino for p in (tmp_path / "lake").rglob("*.parquet")}


def test_doctor_says_what_a_file_holds_in_a_hundred_columns() -> None:
    from pipeline import doctor

    text = doctor.as_text(doctor.examine([str(ROOT / "sample_traces" / "h200_training" / "train_new.sqlite")], None))
    assert "CUPTI_ACTIVITY_KIND_KERNEL" in text
    assert max(len(line) for line in text.splitlines() if line.startswith("  ")) <= 100
