"""Preloaded into the Dask workers of tests/test_cluster.py: a task stops, or ends its process, where a file says so.

In $CLUSTER_TEST: the first task that finds `stop-PLACE` takes that file, writes its process id to `inside-PLACE` and
goes no further. Each task that finds `kill-NAME` while it reads a capture below a folder NAME kills its process.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

from pipeline.attribution import engine
from pipeline.lake.writer import CaptureWriter
from pipeline.sources import nsys_sqlite

_FOLDER = Path(os.environ["CLUSTER_TEST"])


def _stop(place: str) -> None:
    try:
        (_FOLDER / f"stop-{place}").rename(_FOLDER / f"taken-{place}")
    except FileNotFoundError:
        return
    (_FOLDER / f"inside-{place}.partial").write_text(str(os.getpid()))
    (_FOLDER / f"inside-{place}.partial").rename(_FOLDER / f"inside-{place}")
    threading.Event().wait()


def dask_setup(worker: object) -> None:
    """Called by Dask when a worker starts."""
    read, finish, hand_on = nsys_sqlite.read, CaptureWriter.finish, engine._hand_on

    def read_or_die(capture: Any, *rest: Any) -> Any:
        if (_FOLDER / f"kill-{capture.path.parent.name}").exists():
            with (_FOLDER / "deaths").open("a") as file:
                file.write("x")
            os.kill(os.getpid(), signal.SIGKILL)
        return read(capture, *rest)

    def finish_or_stop(writer: CaptureWriter) -> dict[str, int]:
        rows = finish(writer)
        if rows.get("gpu_ops"):
            _stop("ingest")
        return rows

    def hand_on_or_stop(run_dir: Any, connection: Any, name: str, file: str) -> None:
        hand_on(run_dir, connection, name, file)
        if name == "segments":
            _stop("account")

    nsys_sqlite.read = read_or_die
    CaptureWriter.finish = finish_or_stop  # type: ignore[method-assign]
    engine._hand_on = hand_on_or_stop
