"""Steps: cut on the GPU's side, from the right ranges, or said to be guessed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.attribution import timeline
from tests.attribution.build import Row, attributed, rows, shares

if TYPE_CHECKING:
    import duckdb

_STEPS = "SELECT step, start_ns, end_ns, source, complete FROM steps ORDER BY start_ns"


def _range(start: int, end: int | None, text: str, **more: object) -> Row:
    return {"start_ns": start, "end_ns": end, "text": text, **more}


def _op(start: int, end: int, launch: int | None = None, **more: object) -> Row:
    tid = None if launch is None else 1
    return {"start_ns": start, "end_ns": end, "launch_start_ns": launch, "launch_tid": tid, **more}


def test_a_step_is_cut_where_its_first_operation_starts_not_where_the_cpu_enters_it(
    database: duckdb.DuckDBPyConnection,
) -> None:
    timeline.run_rows(
        database,
        nvtx=[_range(0, 100, "step_0"), _range(100, 200, "step_1"), _range(200, 300, "step_2")],
        gpu_ops=[_op(50, 140, 10), _op(140, 180, 110), _op(260, 350, 210)],
    )
    assert timeline.rows(database, _STEPS) == [
        (0, 0, 140, "nvtx", True),
        (1, 140, 200, "nvtx", True),
        (2, 200, 350, "nvtx", True),
    ]


def test_idle_time_at_the_tail_of_a_range_stays_in_its_step(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(
        database,
        nvtx=[_range(0, 100, "step_8"), _range(100, 200, "step_9")],
        gpu_ops=[_op(10, 30, 5), _op(120, 130, 110)],
    )
    assert timeline.rows(database, _STEPS) == [(8, 0, 100, "nvtx", True), (9, 100, 200, "nvtx", True)]


def test_behind_empty_ranges_the_last_one_that_launched_anything_decides(database: duckdb.DuckDBPyConnection) -> None:
    """The operation of step 1 ends before that of step 0: another stream, and nothing after it waits for step 0's."""
    timeline.run_rows(
        database,
        nvtx=[_range(10 * k, 10 * k + 10, f"step_{k}") for k in range(4)],
        gpu_ops=[_op(0, 38, 1), _op(12, 15, 11, stream=8)],
    )
    assert [row[1] for row in timeline.rows(database, _STEPS)] == [0, 12, 20, 30]


def test_F11_a_step_without_any_operation_is_reported_and_all_idle(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        nvtx=[_range(0, 100, "step_0"), _range(100, 200, "step_1"), _range(200, 300, "step_2")],
        gpu_ops=[_op(0, 99, 0)],
    )
    assert [shares(run_dir, step=step) for step in (1, 2)] == [{"host_launch": 100}, {"host_launch": 100}]
    assert rows(run_dir, "SELECT value FROM run_facts WHERE name = 'empty_steps'") == [("2",)]


def test_F32_a_last_step_that_the_capture_cut_is_there_and_marked(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(
        database,
        nvtx=[
            _range(0, 100, "ProfilerStep#3"),
            _range(100, 200, "ProfilerStep#4"),
            _range(200, None, "ProfilerStep#5"),
        ],
        gpu_ops=[_op(0, 90, 0), _op(100, 190, 100), _op(200, 230, 200)],
    )
    assert timeline.rows(database, _STEPS)[-1] == (5, 200, 230, "nvtx", False)


def test_launches_after_the_last_recorded_operation_mark_the_last_step(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(
        database,
        nvtx=[_range(0, 100, "step 0"), _range(100, 200, "step 1")],
        gpu_ops=[_op(0, 90, 0), _op(100, 120, 100)],
        cuda_api=[{"start_ns": 150, "end_ns": 151}],
    )
    assert [row[4] for row in timeline.rows(database, _STEPS)] == [True, False]


@pytest.mark.parametrize(
    ("before", "whole"),
    [
        (_op(0, 40, -20), False),
        (_op(0, 40), False),
        (_op(0, 10, -20), True),
        (_op(0, 40, -20, op_class="copy"), True),
    ],
    ids=["launched before", "launch not seen", "done before", "a batch copied ahead"],
)
def test_a_first_step_that_kernels_of_the_one_before_reach_into_is_partial(
    database: duckdb.DuckDBPyConnection, before: Row, whole: bool
) -> None:
    """The capture began inside step 6, whose range it does not hold: its rest runs inside the first range that it holds."""
    timeline.run_rows(
        database,
        nvtx=[_range(10, 60, "step_7"), _range(60, 160, "step_8")],
        gpu_ops=[before, _op(40, 90, 12), _op(90, 150, 62)],
    )
    assert timeline.rows(database, _STEPS) == [(7, 10, 90, "nvtx", whole), (8, 90, 160, "nvtx", True)]


def test_steps_inside_an_iteration_are_parts_of_it_and_an_epoch_around_all_is_none(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        {"steps": {"pattern": r"^(?:epoch|iteration|step) (\d+)$"}},
        nvtx=[
            _range(0, 200, "epoch 7"),
            *(_range(100 * i, 100 * i + 100, f"iteration {i}") for i in (0, 1)),
            *(_range(50 * i, 50 * i + 50, f"step {i}") for i in range(4)),
        ],
        gpu_ops=[_op(0, 10, 0)],
    )
    assert [row[:3] for row in rows(run_dir, _STEPS)] == [(0, 0, 100), (1, 100, 200)]


def test_the_thread_that_launches_tells_the_steps(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(
        database,
        nvtx=[
            _range(0, 100, "step_0"),
            *(_range(10 * i, 10 * i + 10, f"step_{i}", tid=2) for i in range(10)),
        ],
        gpu_ops=[_op(0, 10, 0)],
    )
    assert [row[:3] for row in timeline.rows(database, _STEPS)] == [(0, 0, 100)]


def test_start_end_ranges_are_steps_too(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(database, nvtx=[_range(0, 100, "STEP=4", kind="start_end")], gpu_ops=[_op(0, 10, 0)])
    assert timeline.rows(database, _STEPS) == [(4, 0, 100, "nvtx", True)]


def test_numbers_that_repeat_give_way_to_ordinals(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(
        database,
        nvtx=[_range(0, 100, "train_step_0"), _range(100, 200, "train_step_1"), _range(200, 300, "train_step_0")],
        gpu_ops=[_op(0, 10, 0)],
    )
    assert [row[0] for row in timeline.rows(database, _STEPS)] == [0, 1, 2]


def test_an_evaluation_is_an_outlier_and_a_stall_is_not(database: duckdb.DuckDBPyConnection) -> None:
    def step(number: int, start: int, end: int, operations: int) -> tuple[Row, list[Row]]:
        work = [_op(start + i, start + i + 1, start + i) for i in range(operations)]
        return _range(start, end, f"step_{number}"), work

    steps = [
        step(0, 0, 100, 20),
        step(1, 100, 200, 20),
        step(2, 200, 900, 20),
        step(3, 900, 1500, 80),
        step(4, 1500, 1600, 20),
    ]
    timeline.run_rows(database, nvtx=[row for row, _ in steps], gpu_ops=[op for _, ops in steps for op in ops])
    assert timeline.rows(database, "SELECT step FROM steps WHERE outlier") == [(3,)]


@pytest.mark.parametrize(
    ("length", "kernels", "outlier"),
    [
        (60, "f" * 7 + "b" * 5, True), (150, "f" * 26, True), (150, "f" * 10 + "b" * 10 + "x" * 20, False),
        (60, "f" * 8 + "b" * 7, True), (60, "f" * 8 + "b" * 8, False), (300, "f" * 12 + "b" * 11, True),
        (300, "f" * 11 + "b" * 11, False),
    ],
)  # fmt: skip
def test_a_step_of_other_work_is_an_outlier_whatever_its_length(
    database: duckdb.DuckDBPyConnection, length: int, kernels: str, outlier: bool
) -> None:
    """Among steps of 100 ns, 10 forward and 10 backward kernels: an evaluation, which has no backward pass, may be little
    longer than a step, or shorter; a step that reads every scalar back has all of a step's kernels, and more."""
    usual = "f" * 10 + "b" * 10
    lengths, works = [100, 100, 100, length, 100, 100], [usual, usual, usual, kernels, usual, usual]
    starts = [sum(lengths[:k]) for k in range(len(lengths))]
    timeline.run_rows(
        database,
        nvtx=[_range(at, at + n, f"step_{k}") for k, (at, n) in enumerate(zip(starts, lengths, strict=True))],
        gpu_ops=[
            _op(at + i, at + i + 1, at + i, name=name)
            for at, work in zip(starts, works, strict=True)
            for i, name in enumerate(work)
        ],
    )
    assert timeline.rows(database, "SELECT step FROM steps WHERE outlier") == [(3,)] * outlier


def test_a_loss_makes_the_steps_that_it_touches_partial(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(
        database,
        nvtx=[_range(100 * i, 100 * i + 100, f"step_{i}") for i in range(3)],
        gpu_ops=[_op(100 * i, 100 * i + 50, 100 * i) for i in range(3)],
        losses=[{"source": "ebpf", "start_ns": 120, "end_ns": 130}],
    )
    assert [row[4] for row in timeline.rows(database, _STEPS)] == [True, False, True]


def _layers(step: int, start: int, layers: int) -> list[Row]:
    """An embedding, equal layers, a loss and two optimizer kernels, 10 ns each."""
    names = ["embed", *(["attention", "mlp", "norm"] * layers), "loss", "adam", "clip"]
    return [_op(start + 10 * i, start + 10 * i + 8, name=name) for i, name in enumerate(names)]


def test_steps_without_ranges_are_inferred_from_the_period_and_say_so(database: duckdb.DuckDBPyConnection) -> None:
    length = 10 * (4 + 3 * 8)
    timeline.run_rows(database, gpu_ops=[op for i in range(6) for op in _layers(i, i * length, 8)])
    found = timeline.rows(database, "SELECT step, start_ns, source, confidence, complete FROM steps ORDER BY step")
    assert found == [(i, i * length, "inferred", 1.0, i < 5) for i in range(6)]


_ADAM = "void multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>(T1, T2)"


def _experts(draw: random.Random, *, in_backward: bool = False) -> list[str]:
    """A step whose experts run as often as routing has it: kernels differ in number and order, the optimizer does not."""
    names = ["embed"]
    for _ in range(8):
        names += ["attention", *draw.choices(("expert_a", "expert_b", "expert_c"), k=draw.randint(2, 9))]
    names.append("loss")
    for _ in range(8):
        names += [*draw.choices(("grad_a", "grad_b", "grad_c"), k=draw.randint(1, 4)), *([_ADAM] * in_backward)]
    return [*names, "clip", *([_ADAM] * (not in_backward)), "scale", _ADAM]


@pytest.mark.parametrize("in_backward", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_steps_that_are_unlike_each_other_are_told_by_the_optimizer(
    database: duckdb.DuckDBPyConnection, in_backward: bool, seed: int
) -> None:
    draw = random.Random(seed)
    steps = [_experts(draw, in_backward=in_backward) for _ in range(8)]
    names = [name for step in steps for name in step]
    begins = [10 * sum(map(len, steps[:k])) for k in range(8)]
    timeline.run_rows(database, gpu_ops=[_op(10 * i, 10 * i + 8, name=name) for i, name in enumerate(names)])
    found = timeline.rows(database, "SELECT start_ns, source, confidence >= 0.8, complete FROM steps ORDER BY start_ns")
    # The first is what lies before the first mark; of the last it isn't known whether it was whole.
    assert found == [(at, "inferred", True, 0 < k < 7) for k, at in enumerate(begins)]


def test_an_optimizer_that_runs_now_and_then_makes_no_steps(database: duckdb.DuckDBPyConnection) -> None:
    draw = random.Random(3)
    names = [name for _ in range(40) for name in (*draw.choices("abcdefg", k=draw.randint(0, 30)), _ADAM)]
    timeline.run_rows(database, gpu_ops=[_op(10 * i, 10 * i + 8, name=name) for i, name in enumerate(names)])
    assert timeline.rows(database, "SELECT DISTINCT source FROM steps") == [("window",)]


def test_F26_no_period_and_library_ranges_are_no_steps_but_windows_without_confidence(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        nvtx=[_range(100 * i, 100 * i + 90, f"step_{i}", domain="CUB") for i in range(4)],
        gpu_ops=[_op(i * 10, i * 10 + 5, name=name) for i, name in enumerate("abcaddbeacbbdeacedabbcadeeacbdda")],
    )
    assert rows(run_dir, "SELECT DISTINCT source, confidence FROM steps") == [("window", 0.0)]
    assert rows(run_dir, "SELECT count(*) FROM run_facts WHERE name = 'steps_window'") == [(1,)]


def test_windows_of_all_ranks_have_the_same_edges(tmp_path: Path) -> None:
    run_dir = attributed(tmp_path, gpu_ops=[_op(0, 1000), _op(350, 700, rank=1)])
    edges = rows(run_dir, "SELECT DISTINCT step, start_ns FROM steps WHERE complete AND rank = 1 ORDER BY step")
    assert set(edges) <= set(rows(run_dir, "SELECT DISTINCT step, start_ns FROM steps WHERE rank = 0"))
    assert len(edges) > 5


def test_launches_without_kernels_have_no_steps_and_are_never_idle(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run_rows(database, nvtx=[_range(0, 100, "step_0")], cuda_api=[{"start_ns": 1, "end_ns": 2}])
    assert timeline.rows(database, "SELECT (SELECT count(*) FROM steps), (SELECT count(*) FROM segments)") == [(0, 0)]


@pytest.mark.parametrize("text", ["step_12", "ProfilerStep#12", "iteration 12", "train_step 12", "iter=12", "STEP: 12"])
def test_common_names_of_steps_are_known(database: duckdb.DuckDBPyConnection, text: str) -> None:
    timeline.run_rows(database, nvtx=[_range(0, 100, text)], gpu_ops=[_op(0, 10, 0)])
    assert [row[0] for row in timeline.rows(database, _STEPS)] == [12]
