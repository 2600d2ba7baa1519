"""Pages and nightly.json: written in one step each, and only where something changed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pipeline.model.errors import MfulossError, UsageError
from pipeline.nightly.outcome import Outcome
from pipeline.reports import history, nights, render

SCHEMA = "mfuloss.nightly/1"


def as_json(series: Sequence[history.Series], reports: Mapping[str, str], history_days: float) -> dict[str, Any]:
    """nightly.json: every series with its nights and verdicts. reports: fingerprint of each run that has a page."""
    return {
        "schema": SCHEMA,
        "history_days": history_days,
        "series": [
            {
                "key": each.key,
                "job": each.job,
                "identity": dict(each.identity),
                "before": each.before,
                "nights": [
                    {
                        "run": night.run,
                        "at": datetime.fromtimestamp(night.at_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                        "at_ns": night.at_ns,
                        "measures": dict(night.measures),
                        "findings": sorted(night.findings),
                        "verdict": asdict(verdict),
                        "page": f"runs/{night.run}.html" if night.run in reports else None,
                    }
                    for night, verdict in zip(each.nights, each.verdicts, strict=True)
                ],
            }
            for each in series
        ],
        "reports": dict(reports),
    }


def write_pages(out: Path, lake: Path, prints: Mapping[str, str], outcome: Outcome, history_days: float) -> None:
    """A page a run, the index of all, and nightly.json. prints: fingerprint of each run. Raises UsageError."""
    try:
        (out / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"can't make it: {error.strerror}", where=out, todo="name a folder with --out") from None
    have = _pages(out)
    done: dict[str, str] = {}
    for run, fingerprint in sorted(prints.items()):
        page = out / "runs" / f"{run}.html"
        if have.get(run) != fingerprint or not page.is_file():
            try:
                shown = render(lake, run, "html")
            except MfulossError as error:
                outcome.failed.append((run, f"no report: {error.line()}"))
                continue
            write(page, shown if isinstance(shown, str) else shown.decode(), outcome)
        done[run] = fingerprint
    write(out / "index.html", nights.index(outcome.series, done), outcome)
    content = json.dumps(as_json(outcome.series, done, history_days), ensure_ascii=False, indent=1, allow_nan=False)
    # Last: it says which pages are up to date.
    write(out / "nightly.json", content + "\n", outcome)


def _pages(out: Path) -> dict[str, str]:
    try:
        return dict(json.loads((out / "nightly.json").read_text(encoding="utf-8"))["reports"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write(path: Path, text: str, outcome: Outcome) -> None:
    """In one step, and only where it changes something."""
    data = text.encode()
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.is_file() and path.read_bytes() == data:
            return
        partial.write_bytes(data)
        os.replace(partial, path)  # noqa: PTH105 - replaces atomically
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"can't write it: {error.strerror}; the lake has all runs", where=path) from None
    outcome.written.append(path)
