"""The real H200 captures: every injected stall in its step and its category, sums exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.ingest import ingest
from pipeline.lake.layout import RunDir
from pipeline.model.run import parse
from tests.attribution.build import rows

_IDLE = "category IN ('gpu_dependency', 'host_sync', 'host_data', 'host_other', 'host_launch', 'idle_other')"
_CONFIG: dict[str, Any] = {
    "model": {"flops_per_step": 11_957_188_952_064},
    "hardware": {"peak_tflops": 989.5},
    "data": {"patterns": ["^data$"]},
}


def _run(shared: Path, tmp: Path, *names: str) -> RunDir:
    files = [shared / "real/h200" / f"{name}.sqlite" for name in names]
    ingest(files, tmp / "lake", run="r", config=parse(_CONFIG), jobs=1)
    return RunDir(tmp / "lake" / "run=r")


@pytest.fixture(scope="module")
def train_new(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return _run(shared, tmp_path_factory.mktemp("train_new"), "train_new")


def _ms(run_dir: RunDir, where: str, rank: int = 0) -> list[float]:
    """Time by step from 1 on, ms with two decimals."""
    query = f"""SELECT sum(attributed_ns) FILTER ({where}) FROM breakdown
        WHERE rank = {rank} AND step >= 1 GROUP BY step ORDER BY step"""
    return [round(int(row[0] or 0) / 1e6, 2) for row in rows(run_dir, query)]


def _dominant(run_dir: RunDir, step: int) -> str:
    """The category that a step has most of beyond a clean step (1)."""
    query = f"""SELECT category FROM breakdown WHERE step IN (1, {step})
        GROUP BY category
        ORDER BY sum(attributed_ns * CASE step WHEN 1 THEN -1 ELSE 1 END) DESC, category LIMIT 1"""
    return str(rows(run_dir, query)[0][0])


def test_train_new_is_idle_as_long_in_each_step_as_computed_independently(train_new: RunDir) -> None:
    expected = [1.50, 1.60, 1.91, 32.19, 17.68, 2.28, 6.99, 28.23, 70.34, 1.97, 4.15, 2.11, 1.53]
    assert expected == _ms(train_new, _IDLE)


def test_train_new_computes_and_copies_as_long_as_computed_independently(train_new: RunDir) -> None:
    compute, copies = _ms(train_new, "category = 'compute'"), _ms(train_new, "category = 'memcpy'")
    assert (compute.pop(9), copies.pop(6), copies.pop(5)) == (36.98, 0.67, 32.69)
    assert (min(compute), max(compute)) == (23.97, 24.42)
    assert [round(copy, 1) for copy in copies] == [0.4] * 11


def test_train_new_sums_are_exact_and_its_steps_complete(train_new: RunDir) -> None:
    unequal = """SELECT s.step FROM steps AS s LEFT JOIN breakdown AS b ON b.step = s.step
        GROUP BY s.step, s.start_ns, s.end_ns HAVING sum(b.attributed_ns) <> s.end_ns - s.start_ns"""
    assert rows(train_new, unequal) == []
    assert rows(train_new, "SELECT count(*), count(*) FILTER (complete), sum(outlier::INT) FROM steps") == [(14, 14, 1)]


@pytest.mark.parametrize(
    ("step", "category"),
    [
        (4, "host_data"),
        (5, "host_launch"),
        (6, "memcpy"),
        (8, "host_data"),
        (9, "host_launch"),
        (10, "compute"),
        (11, "host_sync"),
    ],
)
def test_train_new_has_each_stall_in_the_category_that_it_implies(train_new: RunDir, step: int, category: str) -> None:
    assert category == _dominant(train_new, step)


def test_train_new_clean_steps_have_an_mfu_of_46_percent(train_new: RunDir) -> None:
    query = """SELECT round(points) FROM mfu
        WHERE scope = 'step' AND rank = 0 AND category = 'mfu' AND step IN (1, 2, 3, 12, 13) ORDER BY step"""
    assert rows(train_new, query) == [(47.0,), (47.0,), (46.0,), (45.0,), (46.0,)]
    assert rows(train_new, "SELECT count(*) FROM run_facts WHERE name = 'mfu_error'") == [(0,)]


def test_train_old_has_its_stalls_in_the_same_steps(shared: Path, tmp_path: Path) -> None:
    run_dir = _run(shared, tmp_path, "train_old")
    long = [step for step, idle in enumerate(_ms(run_dir, _IDLE), start=1) if idle > 4]
    assert long == [4, 5, 7, 8, 9, 11]


def test_two_ranks_show_that_rank_1_was_held_up_in_steps_3_5_and_6(shared: Path, tmp_path: Path) -> None:
    run_dir = _run(shared, tmp_path, "rank0_new", "rank1_new")
    late = [step for step, idle in enumerate(_ms(run_dir, _IDLE, rank=1), start=1) if idle > 10]
    assert late == [3, 5, 6]
    assert rows(run_dir, "SELECT count(DISTINCT rank) FROM gpu_ops WHERE op_class = 'comm'") == [(2,)]


def test_a_graph_of_kernels_is_cut_into_steps_by_its_launches(shared: Path, tmp_path: Path) -> None:
    run_dir = _run(shared, tmp_path, "graphnode_new")
    long = [step for step, idle in enumerate(_ms(run_dir, _IDLE), start=1) if idle > 5]
    assert long == [4, 5, 7, 8, 9]


def test_a_run_under_the_older_version_has_every_stall_of_its_truth(shared: Path, tmp_path: Path) -> None:
    """Nsight Systems 2023.4.4 with OS calls: the mutex is inside the data range, the write in an fsync, three hogs leave no
    thread states; what the truth calls a stall covers the kernels that it waited for, so sizes are those of its own time."""
    run_dir = _run(shared, tmp_path, "mini_old")
    found = {step: _dominant(run_dir, step) for step in range(3, 12)}
    assert found == {
        3: "host_data",
        4: "host_data",
        5: "host_other",
        6: "memcpy",
        7: "host_other",
        8: "host_launch",
        9: "gpu_dependency",
        10: "host_sync",
        11: "host_launch",
    }
    query = """SELECT step, round(sum(attributed_ns) / 1e6) FROM breakdown
        WHERE (step, category) IN ((3, 'host_data'), (4, 'host_data'), (5, 'host_other'), (6, 'memcpy'), (8, 'host_launch'))
        GROUP BY step ORDER BY step"""
    assert rows(run_dir, query) == [(3, 30), (4, 21), (5, 15), (6, 35), (8, 20)]
