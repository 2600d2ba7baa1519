"""A source for tests of what ingest does around sources: JSON files named *.toy."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.model.capture import Account, Anchor, Capture, Clock, Gpu, Process, Status
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.model.schema import TABLES

KIND = "toy"


def claims(path: Path) -> bool:
    return path.suffix == ".toy"


def inspect(path: Path, config: RunConfig) -> Capture:
    try:
        raw = json.loads(path.read_text())
    except ValueError:
        raise UnusableInput("not a toy", where=path) from None
    return Capture(
        path=path,
        kind=KIND,
        tool="toybox",
        host=raw.get("host"),
        clock=Clock(raw.get("clock", "realtime")),
        status=Status(raw.get("status", "ok")),
        reason=raw.get("reason"),
        processes=tuple(
            Process(p["key"], p["pid"], None, p.get("env", {}), tuple(Gpu(i, "H200") for i in p.get("gpus", [])))
            for p in raw.get("processes", [])
        ),
        anchors=tuple(Anchor(**a) for a in raw.get("anchors", [])),
    )


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    raw = json.loads(capture.path.read_text())
    if raw.get("surprise"):
        raise ZeroDivisionError("surprise")
    for line in raw.get("bad_lines", []):
        account.bad_line(line.encode())
    for table, rows in raw.get("rows", []):
        time.sleep(raw.get("sleep_s", 0))
        yield table, batch(table, [{**row, **_owner(table, row, ranks, node)} for row in rows])


def _owner(table: str, row: dict[str, Any], ranks: Mapping[int, int], node: str) -> dict[str, Any]:
    names = TABLES[table].column_names
    owner: dict[str, Any] = {}
    if "rank" in names:
        owner["rank"] = ranks.get(row.get("pid", 0))
    if "node" in names:
        owner["node"] = node
    return owner


def batch(table: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """A record batch of a lake table from rows that give some of its columns."""
    schema = TABLES[table].arrow_schema()
    full = [{name: row.get(name) for name in schema.names} for row in rows]
    return pa.RecordBatch.from_pylist(full, schema=schema)


def process(pid: int, gpu: int = 0, **env: str) -> dict[str, Any]:
    """A process with GPU work in a toy file; its rows are those with pid."""
    return {"key": pid, "pid": pid, "gpus": [gpu], "env": env}


def kernel(pid: int, start_ns: int, end_ns: int) -> dict[str, Any]:
    return {"pid": pid, "start_ns": start_ns, "end_ns": end_ns, "op_class": "compute", "name": "k"}


def write(path: Path, pid: int = 1, starts: tuple[int, ...] = (10, 20), **fields: Any) -> Path:
    """A toy capture of one GPU process with a kernel of 5 ns at each start."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "processes": [process(pid)],
        "rows": [["gpu_ops", [kernel(pid, start, start + 5) for start in starts]]],
        **fields,
    }
    path.write_text(json.dumps(content))
    return path


MAIN = """
import sys
from pipeline import sources
from tests import toy
sys.modules["pipeline.sources.toy"] = toy
sources.SOURCES = ("toy",)
from pipeline.cli import main
main()
"""
"""The command with the toy as its only source, for `python -c`."""


def install(monkeypatch: Any) -> None:
    """Make the toy the only source."""
    from pipeline import sources

    monkeypatch.setattr(sources, "SOURCES", ("toy",))
    monkeypatch.setitem(sys.modules, "pipeline.sources.toy", sys.modules[__name__])
    sources.source.cache_clear()
