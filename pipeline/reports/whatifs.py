"""The answer of `mfuloss whatif`: a table of changes, each with its bounds, or the same as JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.reports import figures

SCHEMA = "mfuloss.whatif/1"
WIDTH = 100


def render(lake: Path, run: str | None, changes: Sequence[str] | None, target_mfu: float | None, format: str) -> str:
    """What changes would bring, best first; several that are named are also replayed together.

    Raises NoSuchRun, and UsageError for an unknown change or a run without communication.
    """
    from pipeline.attribution.whatif import whatif
    from pipeline.lake.catalog import find_run
    from pipeline.lake.layout import run_of
    from pipeline.model.run import RunConfig

    run_dir = find_run(lake, run)
    config = RunConfig.model_validate(run_dir.manifest.get("config", {}))
    rows = whatif(run_dir, config, changes, target_mfu=target_mfu)
    if changes and len(changes) > 1:
        rows += whatif(run_dir, config, changes, together=True)
    if format == "json":
        return json.dumps({"schema": SCHEMA, "run": run_of(run_dir.path), "changes": rows}, indent=1)
    return text(rows)


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The table in at most `WIDTH` columns."""
    replays = [row for row in rows if row["optimistic_ns"] is not None]
    lines: list[str] = []
    if replays:
        first = replays[0]
        lines += [
            (
                f"step time of the slowest rank now {figures.time(first['base_ns'])}; without any exposed communication "
                f"{figures.time(first['floor_ns'])}; {first['note']}"
            ),
            "",
            f"{'change':<34} {'expected':>10} {'pessimistic':>12} {'optimistic':>11} {'MFU points':>11}  evidence",
        ]
    for row in replays:
        points = "–" if row["points"] is None else f"{row['points']:+.2f}"
        name = row["change"]
        if len(name) > 34:
            lines += textwrap.wrap(name, WIDTH)
            name = ""
        lines.append(
            f"{name:<34} {figures.time(row['expected_ns']):>10} {figures.time(row['pessimistic_ns']):>12} "
            f"{figures.time(row['optimistic_ns']):>11} {points:>11}  {row['evidence']}"
        )
        lines += textwrap.wrap(
            f"{row['text']}: {row['formula']}", WIDTH, initial_indent="    ", subsequent_indent="    "
        )
    for row in rows:
        if row["optimistic_ns"] is None:
            lines += ["", *textwrap.wrap(row["text"], WIDTH)]
    return "\n".join(lines) or "no change applies to this run"
