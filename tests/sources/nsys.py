"""Small literal Nsight Systems exports for tests, and what a source makes of one."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.model.capture import Account, Capture
from pipeline.model.run import RunConfig
from pipeline.sources import source_of

PID = 148
OTHER_PID = 149


def process(pid: int = PID) -> int:
    """globalPid of a process on hardware 1, as nsys writes it."""
    return (1 << 48) | (pid << 24)


def thread(tid: int, pid: int = PID) -> int:
    return process(pid) | tid


STRINGS = (
    "vectorized_elementwise_kernel",
    "void at::native::vectorized_elementwise_kernel<(int)4, at::native::FillFunctor<c10::BFloat16>>(int, T2)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
    "cudaLaunchKernel_v7000",
    "cudaStreamSynchronize_v3020",
    "cudaGraphLaunch_v10000",
    "ncclAllReduce",
    "read",
)
"""Strings of every literal export; their ids are positions here, from 1."""


def string(value: str) -> int:
    return STRINGS.index(value) + 1


def kernel(
    start: int, end: int, *, pid: int = PID, short: str = STRINGS[0], full: str | None = None, **more: Any
) -> dict[str, Any]:
    """A row of CUPTI_ACTIVITY_KIND_KERNEL."""
    row = {
        "start": start,
        "end": end,
        "deviceId": 0,
        "contextId": 1,
        "streamId": 7,
        "correlationId": None,
        "globalPid": process(pid),
        "shortName": string(short),
        "demangledName": string(full or next(s for s in STRINGS if s.startswith(short) or f"::{short}<" in s)),
    }
    return row | more


def call(
    start: int, end: int, correlation: int, *, pid: int = PID, tid: int = 1, name: str = "cudaLaunchKernel_v7000"
) -> dict[str, Any]:
    """A row of CUPTI_ACTIVITY_KIND_RUNTIME."""
    return {
        "start": start,
        "end": end,
        "globalTid": thread(tid, pid),
        "correlationId": correlation,
        "nameId": string(name),
    }


def nvtx(
    start: int, end: int | None, text: str | bytes | None = None, *, kind: int = 59, tid: int = 1, **more: Any
) -> dict[str, Any]:
    """A row of NVTX_EVENTS."""
    return {
        "start": start,
        "end": end,
        "eventType": kind,
        "globalTid": thread(tid),
        "text": text,
        "textId": None,
        "domainId": 0,
    } | more


def write(path: Path, tables: Mapping[str, Sequence[Mapping[str, Any]]], *, epoch_ns: int | None = 1_000) -> Path:
    """An SQLite export with these tables; columns are those of the first row. StringIds and the start time are added."""
    filled: dict[str, Sequence[Mapping[str, Any]]] = {
        "StringIds": [{"id": i, "value": v} for i, v in enumerate(STRINGS, 1)]
    }
    if epoch_ns is not None:
        filled["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": epoch_ns}]
    filled |= tables
    connection = sqlite3.connect(path)
    for name, rows in filled.items():
        columns = list(rows[0]) if rows else ["start", "end", "globalTid"]
        listed = ", ".join(f'"{column}"' for column in columns)
        connection.execute(f'CREATE TABLE "{name}" ({listed})')
        connection.executemany(
            f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})',
            [[row[c] for c in columns] for row in rows],
        )
    connection.commit()
    connection.close()
    return path


def inspect(path: Path) -> Capture:
    source = source_of(path)
    assert source is not None
    return source.inspect(path, RunConfig())


def rows(
    path: Path,
    *,
    ranks: Mapping[int, int] | None = None,
    config: RunConfig | None = None,
    account: Account | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """All rows of an input by table, in time order. Ranks: by default processes in order of pid."""
    source = source_of(path)
    assert source is not None
    capture = source.inspect(path, config or RunConfig())
    if ranks is None:
        ranks = {p.key: rank for rank, p in enumerate(capture.processes)}
    found: dict[str, list[dict[str, Any]]] = {}
    for table, batch in source.read(capture, ranks, "node0", config or RunConfig(), account or Account()):
        found.setdefault(table, []).extend(batch.to_pylist())
    for table, all_rows in found.items():
        order = [c for c in ("rank", "start_ns", "at_ns", "end_ns") if c in all_rows[0]]
        all_rows.sort(key=lambda r: (*((r[c] is not None, r[c] or 0) for c in order), str(r)))
        found[table] = all_rows
    return found
