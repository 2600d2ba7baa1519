"""Text of `perf script`, and of ftrace's `trace` file: scheduling and post_send probes, as eBPF would record them.

Neither says its clock unless asked to: `perf record -k CLOCK_MONOTONIC` with `perf script --header`; for ftrace a
comment line `# trace_clock: mono` that whoever saved it has added. Without, the capture has times of its own only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.model import library
from pipeline.model.capture import Account, Capture, Clock
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources import _text
from pipeline.sources._ebpf import Assembler, rows_of
from pipeline.sources._plain import head

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "perf_script"
BLOCK_BYTES = 8 << 20

_EVENT = re.compile(
    rb"^.*\s\[\d{3,4}\]\s.*\d+\.\d{6,9}:\s+(?:\d+\s+)?(?:\w+:)?(sched_switch|sched_waking|\w*post_send\w*):",
    re.MULTILINE,
)
_FTRACE = re.compile(rb"^# tracer: ", re.MULTILINE)
_CLOCKS = (
    (re.compile(rb"clockid\s*[:=]\s*(?:monotonic\b|1\b)|# trace_clock: mono\b"), Clock.MONOTONIC),
    (re.compile(rb"clockid\s*[:=]\s*(?:boottime\b|7\b)|# trace_clock: boot\b"), Clock.BOOTTIME),
    (re.compile(rb"clockid\s*[:=]\s*realtime\b"), Clock.REALTIME),
)
_HOST = re.compile(rb"^# hostname : (\S+)", re.MULTILINE)
_VERSION = re.compile(rb"^# perf version : (\S+)", re.MULTILINE)


def claims(path: Path) -> bool:
    """A text file with scheduling or post_send events near its start."""
    return _EVENT.search(head(path, 256 << 10)) is not None


def inspect(path: Path, config: RunConfig) -> Capture:
    """Tool and clock, from the header. Raises UnusableInput without an event of use."""
    text = head(path, 1 << 20)
    events = set(_EVENT.findall(text))
    if not events:
        raise UnusableInput("no sched_switch, sched_waking or post_send event in it", where=path)
    sched = b"sched_switch" in events
    posts = any(b"post_send" in event for event in events)
    clock = next((clock for pattern, clock in _CLOCKS if pattern.search(text)), Clock.NONE)
    host, version = _HOST.search(text), _VERSION.search(text)
    return Capture(
        path=path,
        kind=KIND,
        tool="ftrace" if _FTRACE.search(text) else "perf",
        tool_version=version[1].decode("utf-8", "replace") if version else None,
        host=host[1].decode("utf-8", "replace") if host else None,
        clock=clock,
        present=(*(["posts"] if posts else []), *(["sched"] if sched else [])),
        missing=(*([] if posts else ["posts"]), "completions", *([] if sched else ["sched"])),
        notes=() if clock is not Clock.NONE else ("the file does not name its clock: it can't be put beside others",),
        bytes=path.stat().st_size,
    )


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Posts (entry and return), thread states and losses. Every thread of the trace has states."""
    import pyarrow as pa

    account.lost_events = 0
    assembler = Assembler(node=node, ranks=ranks, source="perf", probe_cost_ns=None, all_threads=True)
    losses: list[tuple[int | None, int | None, int]] = []
    last_ns, first_line = 0, 0
    try:
        for block, cut in _text.blocks(capture.path, size=BLOCK_BYTES):
            texts = block.decode("utf-8", "replace").replace("\0", "?").splitlines()
            if cut and texts:
                account.bad_line(texts.pop().encode())
            lines = pa.table(
                {
                    "line": pa.array(range(first_line, first_line + len(texts)), pa.int64()),
                    "text": pa.array(texts, pa.string()),
                }
            )
            first_line += len(texts)
            inputs, found = _events(assembler, lines, account)
            for before, after, count in found["losses"]:
                losses.append((last_ns if before is None else before, after, count))
            last_ns = max(last_ns, found["last_ns"])
            assembler.take(inputs)
            yield from assembler.block(last_ns=last_ns)
        yield from assembler.block(last_ns=last_ns, final=True)
    finally:
        assembler.close()
    account.lost_events = sum(count for _, _, count in losses)
    ends = [(before, after) for before, after, _ in losses]
    spans = [(b or a or last_ns, a or last_ns) for b, a in ends]
    yield from rows_of(
        "losses",
        {
            "node": [node] * len(losses),
            "source": ["ebpf"] * len(losses),
            "start_ns": [min(span) for span in spans],
            "end_ns": [max(span) for span in spans],
            "lost_events": [count for _, _, count in losses],
        },
    )
    if account.lost_events:
        account.partial(f"the recorder lost {account.lost_events} events")
    if account.bad_line_count:
        account.partial(f"{account.bad_line_count} lines could not be read")


def _events(assembler: Assembler, lines: pa.Table, account: Account) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    connection = assembler.connection
    connection.register("trace_lines", lines)
    for query in ("_trace_events", "_trace_switches", "_trace_calls", "_trace_losses"):
        connection.execute(library.sql(query))
    bad = "SELECT text FROM _trace_events WHERE at_ns IS NULL AND lost IS NULL AND NOT noise ORDER BY line"
    for (text,) in connection.execute(bad).fetchall():
        account.bad_line(text.encode())
    latest = connection.execute("SELECT max(at_ns) FROM _trace_events").fetchall()
    found = {
        "losses": connection.table("_trace_losses").fetchall(),
        "last_ns": latest[0][0] or 0,
    }
    inputs = {
        "switches_in": connection.table("_trace_switches").to_arrow_table(),
        "calls_in": connection.table("_trace_calls").to_arrow_table(),
    }
    return inputs, found
