"""One capture's rows into the run's folder, its times on the node's UTC."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from pipeline.clocks.anchors import ClockMap
from pipeline.ingest.inspect import surprise
from pipeline.lake.layout import RunDir
from pipeline.lake.writer import CaptureWriter
from pipeline.model.capture import Account, Capture, Clock, Status
from pipeline.model.errors import DiskFull, LakeError, MfulossError, is_disk_full
from pipeline.model.run import RunConfig
from pipeline.model.schema import TABLES

_MEMORY_LIMIT = "600MB"
"""Of the DuckDB that sorts one capture's rows."""
_EDGES = {
    "gpu_ops": ("start_ns", "end_ns"),
    "cuda_api": ("start_ns", "end_ns"),
    "os_calls": ("start_ns", "end_ns"),
    "nvtx": ("start_ns", "end_ns"),
    "thread_states": ("start_ns", "end_ns"),
    "rdma_posts": ("enter_ns", "exit_ns"),
    "rdma_completions": ("seen_ns", "seen_ns"),
    "comm_ops": ("start_ns", "end_ns"),
    "comm_phases": ("start_ns", "end_ns"),
    "counters": ("at_ns", "at_ns"),
}
"""Columns that bound a table's events."""


@dataclass(frozen=True)
class CaptureTask:
    """Work order for `ingest_capture`: one input into one run folder."""

    capture: Capture
    capture_id: str
    name: str
    node: str
    ranks: Mapping[int, int]
    clock: ClockMap | None
    config: RunConfig
    run_dir: RunDir
    threads: int = 1


@dataclass(frozen=True)
class CaptureResult:
    """What became of a capture."""

    capture_id: str
    status: Status
    reason: str | None = None
    rows: Mapping[str, int] = field(default_factory=dict)
    lost_events: int | None = None
    probe_cost_ns: int | None = None
    probe_exit_ns: int | None = None
    probe_call_ns: int | None = None
    bad_lines: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    died: bool = False


def ingest_capture(task: CaptureTask) -> CaptureResult:
    """Read one capture into the run's folder; a top-level function so that any worker can run it.

    What is wrong with the capture is in the result; LakeError is raised where the lake can't be written.
    """
    from pipeline.model.library import sql
    from pipeline.sources import source_of

    account = Account()
    source = source_of(task.capture.path)
    if source is None:
        return CaptureResult(task.capture_id, Status.UNUSABLE, "no source reads it any more")
    try:
        with (
            _system_memory(),
            CaptureWriter(
                task.run_dir,
                task.capture_id,
                select=_select(task.clock),
                macros=(sql("on_run_clock"),),
                threads=task.threads,
                memory_limit=_MEMORY_LIMIT,
                contiguous=getattr(source, "CONTIGUOUS", False),
            ) as writer,
        ):
            for table, batch in source.read(task.capture, task.ranks, task.node, task.config, account):
                writer.add(table, batch)
            rows = writer.finish()
    except LakeError:
        raise
    except MfulossError as error:
        return CaptureResult(task.capture_id, Status.UNUSABLE, error.what)
    except Exception as error:
        if is_disk_full(error):
            raise DiskFull(task.run_dir.path.parent.parent) from None
        if os.environ.get("MFULOSS_DEBUG"):
            raise
        return CaptureResult(task.capture_id, Status.UNUSABLE, surprise(error))
    if account.bad_lines:
        side = task.run_dir.path / "side" / f"{task.capture_id}.bad_lines"
        side.parent.mkdir(exist_ok=True)
        side.write_bytes(b"".join(line.rstrip(b"\r\n") + b"\n" for line in account.bad_lines))
    first, last = _span(task, rows)
    status = account.status or task.capture.status
    reason = account.reason or task.capture.reason
    if account.bad_line_count and status is Status.OK:
        status, reason = Status.PARTIAL, f"{account.bad_line_count} lines could not be read"
    if first is not None and task.clock is None:
        status, reason = Status.PARTIAL, _unaligned(task.capture.clock)
    return CaptureResult(
        task.capture_id,
        status,
        reason,
        rows,
        account.lost_events,
        account.probe_cost_ns,
        account.probe_exit_ns,
        account.probe_call_ns,
        account.bad_line_count,
        first,
        last,
    )


@contextmanager
def _system_memory() -> Iterator[None]:
    """Arrow's memory from the system's allocator: its own gives pages back between batches, at 5 to 15 % of the time."""
    import pyarrow as pa

    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def _select(clock: ClockMap | None) -> dict[str, dict[str, str]]:
    """Per table, its times put onto the node's UTC."""
    if clock is None or clock == ClockMap(0, 0, 0, 0):
        return {}
    numbers = f"{clock.offset_ns:d}, {clock.t0_ns:d}, {clock.drift_ppb:d}"
    return {
        table.name: {column: f"on_run_clock({column}, {numbers})" for column in table.time_columns}
        for table in TABLES.values()
    }


def _unaligned(clock: Clock) -> str:
    if clock is Clock.NONE:
        return "unaligned: the file does not say when its times begin"
    return f"unaligned: no anchor maps its {clock} clock to UTC; its rows have no rank"


def _span(task: CaptureTask, rows: Mapping[str, int]) -> tuple[int | None, int | None]:
    """First and last event, from the files' own statistics."""
    import pyarrow.parquet as pq

    firsts: list[int] = []
    lasts: list[int] = []
    for table, (start, end) in _EDGES.items():
        if not rows.get(table):
            continue
        metadata = pq.read_metadata(task.run_dir.file(table, task.capture_id))
        names = TABLES[table].column_names
        for group in range(metadata.num_row_groups):
            for name, take, into in ((start, "min", firsts), (end, "max", lasts), (start, "max", lasts)):
                statistics = metadata.row_group(group).column(names.index(name)).statistics
                if statistics is not None and statistics.has_min_max:
                    into.append(getattr(statistics, take))
    return min(firsts, default=None), max(lasts, default=None)
