"""Tasks give the same results wherever they run, and a worker that dies takes only its own task with it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.executor import WorkerDied, map_tasks
from pipeline.model.errors import LakeError, UsageError
from tests.conftest import ROOT


def square(number: int) -> int:
    return number * number


def die_at_first(task: tuple[int, str]) -> int:
    """Kills its process the first time it gets 3, and each time it gets 13."""
    number, folder = task
    marker = Path(folder) / str(number)
    if number == 13 or (number == 3 and not marker.exists()):
        marker.touch()
        os._exit(9)
    return number


def fail(number: int) -> int:
    if number == 1:
        raise LakeError("no", where="file 1")
    time.sleep(0.05)
    return number


@pytest.mark.parametrize(("jobs", "scheduler"), [(1, None), (2, None)])
def test_results_come_in_the_tasks_order_wherever_they_run(jobs: int | None, scheduler: str | None) -> None:
    seen: dict[int, int] = {}
    result = map_tasks(square, [3, 1, 2], jobs=jobs, scheduler=scheduler, done=seen.__setitem__)
    assert (result, seen) == ([9, 1, 4], {3: 9, 1: 1, 2: 4})


def test_a_task_whose_worker_died_once_is_tried_again_and_one_that_kills_twice_is_named(tmp_path: Path) -> None:
    tasks = [(number, str(tmp_path)) for number in (1, 3, 13, 4, 5)]
    result = map_tasks(
        die_at_first, tasks, jobs=2, label=lambda task: f"file {task[0]}", on_death=lambda task, error: error.line()
    )
    expected = "file 13: the worker process that read it died 2 times; it may need more memory: use fewer --jobs"
    assert [1, 3, expected, 4, 5] == result


def test_without_a_substitute_a_dead_worker_is_an_error_that_names_its_task(tmp_path: Path) -> None:
    with pytest.raises(WorkerDied, match="file 13: "):
        map_tasks(die_at_first, [(13, str(tmp_path)), (1, str(tmp_path))], jobs=2, label=lambda task: f"file {task[0]}")


def test_a_dask_worker_that_dies_takes_only_its_own_task_with_it(tmp_path: Path) -> None:
    tasks = [(number, str(tmp_path)) for number in (1, 3, 13, 4)]
    result = map_tasks(die_at_first, tasks, scheduler="local:2", on_death=lambda task, error: -task[0])
    assert result == [1, 3, -13, 4]


def test_a_script_without_a_main_guard_runs_its_work_once(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from operator import neg\nfrom pipeline.executor import map_tasks\nprint(map_tasks(neg, [1, 2], jobs=2))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[-1, -2]\n", "")


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_a_task_raises_arrives_as_it_was(jobs: int) -> None:
    with pytest.raises(LakeError, match="file 1: no"):
        map_tasks(fail, [0, 1, 2, 3], jobs=jobs)


def test_a_scheduler_that_does_not_answer_is_bad_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.executor._SCHEDULER_TIMEOUT_S", 1)
    with pytest.raises(UsageError, match="no Dask scheduler answers"):
        map_tasks(square, [1], scheduler="tcp://127.0.0.1:9")
    with pytest.raises(UsageError, match="number of workers"):
        map_tasks(square, [1], scheduler="local:many")
