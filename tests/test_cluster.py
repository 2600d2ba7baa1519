"""A Dask cluster of separate processes makes the lake that one process makes, also when workers are killed."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.ingest import ingest
from pipeline.simulate import simulate
from tests.conftest import ROOT

pytest.importorskip("distributed")
_START_S = 30
_FAILURES = 1  # a task may take as many workers with it as this, and one more


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures of two nodes."""
    folder = tmp_path_factory.mktemp("captures") / "night"
    simulate("healthy", folder, nodes=2, gpus_per_node=1, steps=2, scale=0.01)
    return folder


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address of a scheduler with two workers, each a process of its own, and the folder that commands them."""
    folder = tmp_path_factory.mktemp("cluster")
    file = folder / "scheduler.json"
    common = ["--scheduler-file", str(file), "--dashboard-address", "127.0.0.1:0", "--host", "127.0.0.1"]
    preload = str(ROOT / "tests" / "cluster_worker.py")
    worker = ["worker", *common, "--nthreads", "1", "--local-directory", str(folder / "dask"), "--preload", preload]
    with ExitStack() as stack:
        for arguments in (["scheduler", *common, "--port", "0"], worker, worker):
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments],
                cwd=folder,
                env={
                    **os.environ,
                    "PYTHONPATH": str(ROOT),
                    "CLUSTER_TEST": str(folder),
                    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": str(_FAILURES),
                },
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(_stop, process)
        yield str(json.loads(_appears(file))["address"]), folder


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()  # a worker's nanny takes its worker with it
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _appears(file: Path) -> str:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if file.is_file() and file.stat().st_size:
            return file.read_text()
        time.sleep(0.02)
    raise TimeoutError(f"no {file.name} after {_START_S} s")


def tables(lake: Path) -> dict[str, str]:
    """Hash of every table's file in the lake."""
    return {
        str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest() for path in lake.rglob("*.parquet")
    }


def test_workers_killed_amid_their_tasks_change_no_byte_of_what_one_process_writes(
    tmp_path: Path, captures: Path, cluster: tuple[str, Path]
) -> None:
    """One worker is killed with a capture read but not yet told of, one between two tables of its rank."""
    scheduler, folder = cluster
    killed: list[str] = []

    def kill() -> None:
        for place in ("ingest", "account"):
            os.kill(int(_appears(folder / f"inside-{place}")), signal.SIGKILL)
            killed.append(place)

    for place in ("ingest", "account"):
        (folder / f"stop-{place}").touch()
    killer = threading.Thread(target=kill)
    killer.start()
    together = ingest([captures], tmp_path / "together", run="night", scheduler=scheduler)
    killer.join()
    assert killed == ["ingest", "account"]
    alone = ingest([captures], tmp_path / "alone", run="night", jobs=1)
    assert together.rows == alone.rows > 0
    assert tables(tmp_path / "together") == tables(tmp_path / "alone")


def test_a_capture_that_kills_its_worker_each_time_is_named_and_the_rest_is_done(
    tmp_path: Path,
    captures: Path,
    cluster: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scheduler, folder = cluster
    (folder / "kill-node01").touch()
    reports = [str(captures / node / "report.sqlite") for node in ("node00", "node01")]
    command = ["ingest", *reports, "--lake", str(tmp_path / "lake"), "--run", "night", "--scheduler", scheduler]
    monkeypatch.setattr(sys, "argv", ["mfuloss", *command])
    with pytest.raises(SystemExit) as done:
        main()
    deaths = len((folder / "deaths").read_text())
    out, err = capsys.readouterr()
    assert done.value.code == 3
    assert deaths == 2 * (_FAILURES + 1)  # among other tasks, and once more alone
    assert f"unusable: the worker process that read it died {deaths} times" in err
    assert "node01/report.sqlite" in err
    assert re.search(rf"^Dask at {scheduler}: [12] workers?; dashboard http://127.0.0.1:\d+/", err, re.M), err
    assert out.startswith("run night: 1 read, 0 unchanged, ")
