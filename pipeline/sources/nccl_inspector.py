"""NCCL Inspector: a JSON object a collective, with its size, sequence number and duration."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.model.capture import Account, Capture, Clock, Process
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources import _nccl_json
from pipeline.sources._json_lines import objects
from pipeline.sources._plain import head

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "nccl_inspector"


def claims(path: Path) -> bool:
    """A JSON file with `coll_perf` objects near its start."""
    text = head(path)
    return text.lstrip()[:1] in (b"{", b"[") and b'"coll_perf"' in text and b'"header"' in text


def inspect(path: Path, config: RunConfig) -> Capture:
    """Host, process and rank, from the first object. Raises UnusableInput without one."""
    first: dict[str, Any] = {}
    for texts in objects(path, Account()):
        for text in texts:
            try:
                value = json.loads(text)
            except ValueError:
                continue
            if isinstance(value, dict) and isinstance(value.get("coll_perf"), dict):
                first = value
                break
        break
    if not first:
        raise UnusableInput("no collective in it", where=path)
    metadata = first["metadata"] if isinstance(first.get("metadata"), dict) else {}
    pid = metadata.get("pid")
    host = metadata.get("hostname")
    traced = "event_trace_ts" in first["coll_perf"]
    return Capture(
        path=path,
        kind=KIND,
        tool="NCCL Inspector",
        tool_version=str(metadata["inspector_output_format_version"])
        if "inspector_output_format_version" in metadata
        else None,
        host=host if isinstance(host, str) and host else None,
        clock=Clock.REALTIME,
        processes=(Process(key=pid, pid=pid),) if isinstance(pid, int) and 0 < pid < 1 << 31 else (),
        present=("comm_ops",),
        missing=() if traced else ("event_trace",),
        notes=() if traced else ("without NCCL_INSPECTOR_DUMP_VERBOSE=1 it says how long, not when",),
        bytes=path.stat().st_size,
    )


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Collectives. Their rank is their process's; the rank in the file counts in its communicator."""
    yield from _nccl_json.run(
        capture,
        ranks,
        node,
        account,
        extract="_inspector_events",
        queries=("_inspector_comm_ops",),
        outputs={"comm_ops": "_inspector_comm_ops"},
    )
