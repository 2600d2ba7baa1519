"""`mfuloss doctor`: what is installed, what an input holds, what is missing and what that costs."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pipeline import __version__
from pipeline.ingest.find import config_path, find_inputs
from pipeline.ingest.identify import gpu_processes
from pipeline.ingest.inspect import Inspected, InspectTask, inspect_capture
from pipeline.model.errors import MfulossError
from pipeline.model.ranks import Ranking, assign_ranks
from pipeline.model.run import RunConfig, load

PACKAGES = ("duckdb", "pyarrow", "polars", "adbc-driver-sqlite", "altair", "vl-convert-python", "distributed")
_WITHOUT = {
    "distributed": "no --scheduler; everything else works (pip install 'mfuloss[cluster]')",
    "nsys": ".nsys-rep files can't be read; .sqlite exports can (nsys export --type sqlite FILE)",
    "bpftrace": "mfuloss collect can't run on this machine; captures from elsewhere can be read",
}
COSTS = {
    "CUPTI_ACTIVITY_KIND_RUNTIME": "no launches: idle time can't be told apart, all of it is idle_other",
    "CUPTI_ACTIVITY_KIND_KERNEL": "no kernels: the capture can't be attributed",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "copies, if there were any, are idle time",
    "NVTX_EVENTS": "no step ranges: steps are inferred from periodicity, or the report is per time window",
    "OSRT_API": "waits of the host in the operating system are host_launch or host_other (nsys --trace=osrt)",
    "SCHED_EVENTS": "threads off-CPU are not seen: part of host_other is host_launch (nsys --cpuctxsw=process-tree)",
    "posts": "exposed communication stays comm_unattributed: no CPU doorbell, control plane or transfer",
    "completions": "messages have no end: no transfer, latency or blocking verdict",
    "sched": "a proxy thread that waits for its core is not seen: ctl_schedule is in ctl_loop",
}
"""What an answer loses with what a capture lacks, by the names that sources give."""
WIDTH = 100
_IGNORED_SHOWN = 20


@dataclass(frozen=True)
class Installed:
    """A tool or library. version: None where it is not installed; costs says what then is missing."""

    name: str
    version: str | None
    costs: str | None = None


@dataclass(frozen=True)
class Examined:
    """An input as the doctor saw it."""

    path: str
    usable: bool
    reason: str | None
    kind: str | None = None
    tool: str | None = None
    host: str | None = None
    clock: str | None = None
    bytes: int = 0
    processes: tuple[dict[str, Any], ...] = ()
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Examination:
    """All that the doctor found."""

    installed: tuple[Installed, ...]
    inputs: tuple[Examined, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())


def examine(inputs: Sequence[str | Path], config: str | Path | None = None) -> Examination:
    """Look at this machine and at the inputs; nothing is written."""
    installed = tuple(_installed())
    if not inputs:
        return Examination(installed)
    found = find_inputs(inputs)
    notes: list[str] = []
    path = config_path(config, found)
    settings = load(path) if path else RunConfig()
    inspected = [inspect_capture(InspectTask(each, settings)) for each in found.inputs]
    nodes = {
        each.input.name: (each.capture.host if each.capture else None) or each.input.path.parent.name
        for each in inspected
    }
    try:
        ranking = assign_ranks(list(gpu_processes(inspected, nodes)), settings.ranks)
        notes += ranking.notes
    except MfulossError as error:
        ranking = Ranking()
        notes.append(error.line())
    return Examination(
        installed,
        tuple(_examined(each, ranking) for each in inspected),
        tuple(str(path) for path in found.ignored),
        tuple(notes),
    )


def _installed() -> list[Installed]:
    result = [Installed("mfuloss", __version__), Installed("python", platform.python_version())]
    for name in PACKAGES:
        try:
            result.append(Installed(name, version(name)))
        except PackageNotFoundError:
            result.append(Installed(name, None, _WITHOUT.get(name)))
    result.append(_program("nsys", os.environ.get("NSYS") or "nsys"))
    result.append(_program("bpftrace", "bpftrace"))
    return result


def _program(name: str, command: str) -> Installed:
    path = shutil.which(command)
    if path is None:
        return Installed(name, None, _WITHOUT[name])
    try:
        out = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Installed(name, None, f"{path} does not run: {error}")
    said = re.search(r"\d+(?:\.\d+)+[\w.-]*", out.stdout + out.stderr)
    return Installed(name, said.group() if said else "unknown version")


def _examined(each: Inspected, ranking: Ranking) -> Examined:
    capture = each.capture
    path = str(each.input.path)
    if capture is None:
        return Examined(path, False, each.reason, each.kind, bytes=each.bytes)
    processes = tuple(
        {
            "pid": process.pid,
            "name": process.name,
            "gpus": [f"{gpu.index}: {gpu.name or 'unknown'}" for gpu in process.gpus],
            "rank": ranking.ranks.get((each.input.name, process.key)),
            "rank_by": ranking.basis.get((each.input.name, process.key)),
        }
        for process in capture.processes
    )
    return Examined(
        path,
        each.usable,
        capture.reason,
        capture.kind,
        " ".join(part for part in (capture.tool, capture.tool_version) if part),
        capture.host,
        str(capture.clock),
        each.bytes,
        processes,
        capture.present,
        capture.missing,
        tuple(f"{name}: {COSTS[name]}" for name in capture.missing if name in COSTS),
        capture.notes,
    )


def as_json(found: Examination) -> str:
    """The examination as JSON (schema mfuloss.doctor/1)."""
    return json.dumps({"schema": "mfuloss.doctor/1", **asdict(found)}, indent=1, ensure_ascii=False)


def as_text(found: Examination) -> str:
    """The examination for people."""
    width = max(len(each.name) for each in found.installed)
    lines = ["Installed"]
    for each in found.installed:
        what = each.version or "not installed" + (f": {each.costs}" if each.costs else "")
        lines.append(f"  {each.name.ljust(width)}  {what}")
    for item in found.inputs:
        lines += ["", item.path, *_lines_of(item)]
    if found.ignored:
        lines += ["", "Ignored, no source reads them", *(f"  {path}" for path in found.ignored[:_IGNORED_SHOWN])]
        if len(found.ignored) > _IGNORED_SHOWN:
            lines.append(f"  and {len(found.ignored) - _IGNORED_SHOWN} more (--format json lists all)")
    if found.notes:
        lines += ["", "Notes", *(f"  {note}" for note in found.notes)]
    return "\n".join(part for line in lines for part in _wrapped(line)) + "\n"


def _wrapped(line: str) -> list[str]:
    """A line in at most WIDTH columns; paths, which begin a paragraph, stay whole."""
    if len(line) <= WIDTH or not line.startswith("  "):
        return [line]
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=" " * 13, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def _lines_of(item: Examined) -> list[str]:
    if not item.usable:
        lines = [f"  unusable   {item.reason}"]
        if item.kind is None or item.tool is None:
            return lines
    else:
        lines = [f"  usable     {item.reason}" if item.reason else "  usable     yes"]
    lines.append(f"  format     {item.kind}, {item.tool}, {item.bytes} bytes")
    lines.append(f"  node       {item.host or 'the folder (the file does not say)'}; clock {item.clock}")
    for process in item.processes:
        if process["rank"] is not None:
            rank = f"rank {process['rank']} (by {process['rank_by']})"
        else:
            rank = "no rank: no GPU work" if not process["gpus"] else "no rank"
        gpus = f", GPU {'; '.join(process['gpus'])}" if process["gpus"] else ""
        lines.append(f"  process    {process['pid']} {process['name'] or ''}: {rank}{gpus}")
    if item.present:
        lines.append(f"  holds      {', '.join(item.present)}")
    if item.missing:
        lines.append(f"  missing    {', '.join(item.missing)}")
    lines += [f"             {cost}" for cost in item.costs]
    lines += [f"  note       {note}" for note in item.notes]
    return lines
