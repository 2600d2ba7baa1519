"""log_events and losses of an Nsight Systems export: its diagnostics, its environment, and what reading flagged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.model.capture import Capture
from pipeline.sources import nsys_tables as tables
from pipeline.sources.nsys_tables import Export, records
from pipeline.sources.nsys_text import is_environment_block

if TYPE_CHECKING:
    from pipeline.sources.nsys_capture import _Flags

_SEVERITIES = {1: "info", 2: "warning", 3: "error", 4: "error"}
_LOST = re.compile(r"\b(?:lost|dropped|discarded)\b", re.IGNORECASE)
_COUNT = re.compile(r"\b(\d+)\b[^.\n]*\b(?:events?|records?)\b", re.IGNORECASE)
_NEARBY_NS = 60 * 10**9


def events(
    export: Export,
    capture: Capture,
    ranks: Mapping[int, int],
    node: str,
    flags: _Flags,
    epoch_ns: int,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of log_events and of losses."""
    found: list[dict[str, Any]] = []
    losses: list[dict[str, Any]] = []

    def note(code: str, severity: str, text: str, **more: Any) -> None:
        found.append({"node": node, "source": "nsys", "code": code, "severity": severity, "text": text, **more})

    for process in capture.processes:
        for name, value in sorted(process.env.items()):
            note(name, "info", f"{name}={value}", source="env", rank=ranks.get(process.key))
    duration = next((row["duration"] for row in records(export, tables.DETAILS)), None)
    for row in records(export, tables.DIAGNOSTICS):
        text, at = row["text"] or "", row["timestamp"]
        severity = _SEVERITIES.get(row["severity"], "info")
        lost = _LOST.search(text) is not None and _COUNT.search(text) is not None
        if (severity == "info" and not lost) or not text:
            continue
        sane = at is not None and -_NEARBY_NS <= at <= (duration or 0) + _NEARBY_NS
        code = "lost_events" if lost else "diagnostic"
        note(code, "warning" if lost else severity, text, at_ns=epoch_ns + at if sane else None)
        if lost:
            counted = _COUNT.search(text)
            losses.append(
                {
                    "node": node,
                    "source": "nsys",
                    "start_ns": epoch_ns,
                    "end_ns": epoch_ns + (duration or 0),
                    "lost_events": int(counted[1]) if counted else None,
                }
            )
    for table, count in sorted(flags.inverted.items()):
        if count:
            note(
                "inverted_range",
                "warning",
                f"{count} rows of {table} end before they start: kept, and left out of sums",
            )
    for table, count in sorted(flags.absurd.items()):
        note("impossible_time", "warning", f"{count} rows of {table} are more than a year from the session: left out")
    for table, count in sorted(flags.sizes.items()):
        note("impossible_size", "warning", f"{count} rows of {table} have a size below 0 or above 1 PiB: size unknown")
    if flags.overlaps.count:
        note(
            "same_stream_overlap",
            "warning",
            f"{flags.overlaps.count} GPU operations start before the one before them on their stream has ended: "
            "their times are not to be trusted",
        )
    if flags.graph_rows:
        note(
            "graph_opaque",
            "warning",
            f"{flags.graph_rows} CUDA graph launches were traced as a whole: what runs inside is not visible; "
            "capture with --cuda-graph-trace=node",
        )
    if flags.without_launch:
        note(
            "launch_not_captured",
            "info",
            f"{flags.without_launch} of {flags.ops} GPU operations have no launch call in the capture",
        )
    for column, count in sorted(export.problems.mistyped.items()):
        note("mistyped_value", "warning", f"{count} values of {column} are no integers: read as NULL")
    for process in capture.processes:
        if process.key not in ranks:
            note("process_without_rank", "warning", f"process {process.pid} has GPU work but no rank")
    return [row for row in found if not is_environment_block(row["text"].encode())], losses
