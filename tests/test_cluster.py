"""A Dask cluster of separate processes makes the lake that one process makes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from pipeline.ingest import ingest
from pipeline.simulate import simulate
from tests.conftest import ROOT

pytest.importorskip("distributed")
_START_S = 30


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """Address of a scheduler with two workers, each a process of its own."""
    file = tmp_path / "scheduler.json"
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    here = ["--host", "127.0.0.1"]
    worker = ["worker", *common, *here, "--nthreads", "1", "--no-nanny", "--local-directory", str(tmp_path / "dask")]
    with ExitStack() as stack:
        for arguments in (["scheduler", *common, *here, "--port", "0"], worker, worker):
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *arguments],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield _address(file)


def _address(file: Path) -> str:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if file.is_file() and file.stat().st_size:
            return str(json.loads(file.read_text())["address"])
        time.sleep(0.05)
    raise TimeoutError(f"no scheduler after {_START_S} s")


def tables(lake: Path) -> dict[str, str]:
    """Hash of every table's file in the lake."""
    return {
        str(path.relative_to(lake)): hashlib.sha256(path.read_bytes()).hexdigest() for path in lake.rglob("*.parquet")
    }


def test_a_cluster_of_processes_writes_the_same_bytes_as_one_process(tmp_path: Path, scheduler: str) -> None:
    simulate("healthy", tmp_path / "night", nodes=2, gpus_per_node=1, steps=2, scale=0.01)
    inputs = [tmp_path / "night"]
    alone = ingest(inputs, tmp_path / "alone", run="night", jobs=1)
    together = ingest(inputs, tmp_path / "together", run="night", scheduler=scheduler)
    assert together.rows == alone.rows > 0
    assert tables(tmp_path / "together") == tables(tmp_path / "alone")
