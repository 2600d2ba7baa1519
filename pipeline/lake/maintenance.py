"""What a lake holds, and keeping it small: list, remove, drop old events, compact, clean up after crashes."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.lake.catalog import find_lake, find_run, refresh
from pipeline.lake.layout import PARQUET_OPTIONS, RunDir, open_connection, quote, run_of, runs_of
from pipeline.lake.transaction import Transaction, host_name, staging_name, write_error
from pipeline.model.errors import LakeError
from pipeline.model.schema import TABLES

KEPT_WITHOUT_EVENTS = ("captures", "ranks", "log_events", "losses")
"""Event tables that stay when a run's events are dropped: small, and what reports name sources by."""


@dataclass(frozen=True)
class RunInfo:
    """A run at a glance. bytes: on disk; committed_ns: UTC epoch ns of its last commit."""

    run: str
    committed_ns: int
    captures: int
    unusable: int
    rows: int
    bytes: int
    events: bool


def runs(lake: str | Path) -> list[RunInfo]:
    """Every run of the lake, oldest commit first."""
    found = [run_info(RunDir(path)) for path in runs_of(find_lake(lake))]
    return sorted(found, key=lambda info: (info.committed_ns, info.run))


def run_info(run_dir: RunDir) -> RunInfo:
    """One run at a glance."""
    manifest = run_dir.manifest
    captures = [entry for entry in manifest.get("captures", {}).values() if entry["kind"] != "anchors"]
    return RunInfo(
        run=run_of(run_dir.path),
        committed_ns=(run_dir.path / "manifest.json").stat().st_mtime_ns,
        captures=len(captures),
        unusable=sum(entry["status"] == "unusable" for entry in captures),
        rows=sum(manifest.get("rows", {}).values()),
        bytes=sum(file.stat().st_size for file in run_dir.path.rglob("*") if file.is_file()),
        events=not manifest.get("events_dropped", False),
    )


def table_sizes(run_dir: RunDir) -> list[tuple[str, int, int, int]]:
    """(table, files, rows, bytes) of a run's tables that have files, in the schema's order."""
    import pyarrow.parquet as pq

    result = []
    for table in TABLES:
        files = run_dir.files(table)
        if files:
            rows = sum(pq.read_metadata(file).num_rows for file in files)
            result.append((table, len(files), rows, sum(file.stat().st_size for file in files)))
    return result


def remove(lake: str | Path, run: str) -> None:
    """Remove a run: gone for readers in one rename, then deleted. Raises NoSuchRun, LakeError."""
    path = find_lake(lake)
    target = find_run(path, run)
    grave = path / ".staging" / staging_name(run)
    try:
        grave.parent.mkdir(exist_ok=True)
        target.path.rename(grave)
    except OSError as error:
        raise LakeError(f"can't remove it: {error.strerror}", where=target.path) from None
    shutil.rmtree(grave, ignore_errors=True)
    refresh(path)


def drop_events(lake: str | Path, run: str) -> int:
    """Drop a run's event tables; breakdowns, findings and the like stay. Bytes that this frees."""
    path = find_lake(lake)
    target = find_run(path, run)
    before = run_info(target).bytes
    with Transaction(path, run) as transaction:
        for table in TABLES.values():
            if not table.derived and table.name not in KEPT_WITHOUT_EVENTS:
                transaction.staging.remove(table.name)
        _rewrite_manifest(transaction.staging, {**target.manifest, "events_dropped": True, "whole": False})
        transaction.commit()
    refresh(path)
    return before - run_info(find_run(path, run)).bytes


def drop_old_events(lake: str | Path, days: float, *, now_ns: int | None = None) -> list[str]:
    """Drop the events of runs whose last commit is more than `days` old; their ids."""
    limit = (time.time_ns() if now_ns is None else now_ns) - round(days * 86_400 * 10**9)
    old = [info.run for info in runs(lake) if info.events and info.committed_ns < limit]
    for run in old:
        drop_events(lake, run)
    return old


def compact(lake: str | Path, run: str) -> tuple[int, int]:
    """One file a table in place of one a capture, sorted; (files before, files after).

    The captures table and the manifest stay. A later ingest into the run reads its captures again.
    """
    path = find_lake(lake)
    before = after = 0
    with Transaction(path, run) as transaction:
        staging = transaction.staging
        manifest = find_run(path, run).manifest
        for table in TABLES.values():
            files = staging.files(table.name)
            before += len(files)
            if len(files) > 1:
                _merge(staging, table.name, files)
            after += len(staging.files(table.name))
        if after == before:
            return before, after
        _rewrite_manifest(staging, {**manifest, "whole": False})
        transaction.commit()
    refresh(path)
    return before, after


def _rewrite_manifest(run_dir: RunDir, manifest: dict[str, Any]) -> None:
    """The manifest anew, as old as it was: its time is when the run was read, by which events are dropped."""
    was = (run_dir.path / "manifest.json").stat()
    run_dir.write_manifest(manifest)
    os.utime(run_dir.path / "manifest.json", ns=(was.st_atime_ns, was.st_mtime_ns))


def _merge(run_dir: RunDir, table: str, files: list[Path]) -> None:
    schema = TABLES[table]
    listed = ", ".join(quote(str(file)) for file in files)
    order = ", ".join(f"{name} NULLS FIRST" for name in schema.sort)
    target = run_dir.path / table / "compacted.partial"
    connection = open_connection(threads=2, spill=run_dir.path / ".spill")
    try:
        connection.execute(
            f"COPY (SELECT {', '.join(schema.column_names)} FROM read_parquet([{listed}], hive_partitioning = false) "
            f"ORDER BY {order}) TO {quote(str(target))} ({PARQUET_OPTIONS})"
        )
    finally:
        connection.close()
    for file in files:
        file.unlink()
    target.rename(target.with_suffix(".parquet"))


def check_lake(lake: Path) -> None:
    """Make the lake's folder and clean up after processes that died. Raises LakeError where it can't be written."""
    if lake.exists() and not lake.is_dir():
        raise LakeError("is a file, not a lake", where=lake, todo="name a folder with --lake")
    try:
        (lake / ".staging").mkdir(parents=True, exist_ok=True)
        probe = lake / ".staging" / f".probe.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise write_error(lake, error) from None
    clean_staging(lake)


def clean_staging(lake: Path) -> list[str]:
    """Remove what processes that are gone left under .staging; its names."""
    removed = []
    for path in sorted((lake / ".staging").glob("*.*.*.*")):
        _, host, pid, _ = path.name.rsplit(".", 3)
        # Another host's process can't be asked: a lake may lie on a shared file system.
        if host == host_name() and pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path.name)
    return removed


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def describe(lake: str | Path, run: str | None = None) -> dict[str, Any]:
    """Everything that `mfuloss lake info` shows of a run, as JSON values."""
    run_dir = find_run(lake, run)
    info = run_info(run_dir)
    manifest = run_dir.manifest
    return {
        "run": info.run,
        "committed_ns": info.committed_ns,
        "bytes": info.bytes,
        "rows": info.rows,
        "events_dropped": not info.events,
        "versions": manifest.get("versions", {}),
        "config": manifest.get("config", {}),
        "captures": [
            {
                name: entry.get(name)
                for name in ("name", "kind", "tool", "tool_version", "host", "status", "reason", "rows", "bytes")
            }
            for entry in sorted(manifest.get("captures", {}).values(), key=lambda entry: str(entry["name"]))
        ],
        "tables": [
            {"table": table, "files": files, "rows": rows, "bytes": size}
            for table, files, rows, size in table_sizes(run_dir)
        ],
    }
