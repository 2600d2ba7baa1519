"""The nightly batch: new runs of an inbox into the lake, each job against its own history, pages and metrics.

What is done is known by the lake alone: a run that the batch ingests keeps its folder's fingerprint in manifest.json,
in the same commit as its rows, so a call that dies anywhere is taken up by the next one. LAKE/nightly.json says of
which runs the verdict was reported; it is written last.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from pipeline.executor import Progress, no_progress
from pipeline.ingest import ingest
from pipeline.lake.catalog import CATALOG, refresh
from pipeline.lake.layout import runs_of
from pipeline.lake.maintenance import check_lake
from pipeline.model.errors import DiskFull, LakeError, MfulossError, UsageError, is_disk_full
from pipeline.nightly.inbox import find_folders, fingerprint_of
from pipeline.nightly.lock import locked
from pipeline.nightly.outcome import Outcome, counts, gate, lines
from pipeline.nightly.pages import SCHEMA, write, write_pages
from pipeline.nightly.series import judged, origins_of
from pipeline.nightly.settings import NightlyConfig, settings_of
from pipeline.reports import nights

__all__ = ["STATE", "Outcome", "gate", "lines", "nightly"]

STATE = "nightly.json"


def nightly(
    inbox: str | Path,
    lake: str | Path,
    *,
    history_days: float = 28.0,
    out: str | Path | None = None,
    openmetrics: str | Path | None = None,
    config: str | Path | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Progress = no_progress,
) -> Outcome:
    """Ingest what is new and complete in `inbox`, judge each job's nights, and write pages and metrics.

    config: nightly.toml (default: the one in the inbox). A run that can't be read is in `failed`, tried again by the
    next call, and stops no other. Raises UsageError for a missing inbox or a second call at the same time, ConfigError,
    and LakeError where the lake can't be written; the lake then has the runs committed so far, each of them whole.
    """
    inbox, lake = Path(inbox), Path(lake)
    if not inbox.is_dir():
        raise UsageError("no such folder", where=inbox, todo="name the folder that runs are dropped in")
    settings = settings_of(inbox, config)
    check_lake(lake)
    outcome = Outcome()
    with locked(lake) as stale:
        if stale:
            outcome.notes.append(stale)
        _read_new(inbox, lake, settings, outcome, jobs, scheduler, progress)
        origins = origins_of(lake)
        _complete_catalog(lake)
        outcome.series = judged(lake, origins, settings.verdict, history_days)
        reported = _reported(lake)
        prints = {run: str(manifest["origin"]["fingerprint"]) for run, manifest in origins.items()}
        outcome.fresh = [
            verdict.run
            for series in outcome.series
            for verdict in series.verdicts
            if reported.get(verdict.run) != prints[verdict.run]
        ]
        if out is not None:
            write_pages(Path(out), lake, prints, outcome, history_days)
        if openmetrics is not None:
            text = nights.openmetrics(outcome.series, counts(outcome), time.time())
            write(Path(openmetrics), text, outcome)
        if reported != prints:
            write(lake / STATE, json.dumps({"schema": SCHEMA, "reported": prints}, indent=1, sort_keys=True), outcome)
    return outcome


def _read_new(
    inbox: Path,
    lake: Path,
    settings: NightlyConfig,
    outcome: Outcome,
    jobs: int | None,
    scheduler: str | None,
    progress: Progress,
) -> None:
    known = {run: str(manifest["origin"]["fingerprint"]) for run, manifest in origins_of(lake).items()}
    folders = find_folders(inbox, settings)
    for number, folder in enumerate(folders):
        progress("night", number, len(folders))
        if known.get(folder.run) == folder.fingerprint:
            outcome.unchanged.append(folder.run)
            continue
        now, changed_ns = fingerprint_of(folder.path)
        if now != folder.fingerprint or time.time_ns() - changed_ns < settings.inbox.settle_s * 1e9:
            outcome.waiting.append(folder.run)
            continue
        origin = {
            "kind": "nightly",
            "folder": folder.path.relative_to(inbox).as_posix(),
            "job": folder.job,
            "fingerprint": folder.fingerprint,
        }
        try:
            report = ingest(
                [folder.path], lake, run=folder.run, jobs=jobs, scheduler=scheduler, progress=progress, origin=origin
            )
        except LakeError as error:
            if "another process" not in error.what:
                raise
            outcome.failed.append((folder.run, error.line()))
        except MfulossError as error:
            outcome.failed.append((folder.run, error.line()))
        except Exception as error:
            if is_disk_full(error):
                raise DiskFull(lake) from None
            if os.environ.get("MFULOSS_DEBUG"):
                raise
            text = " ".join(str(error).split())
            outcome.failed.append((folder.run, f"bug: {type(error).__name__}: {text}; --debug shows where"))
        else:
            outcome.read.append(folder.run)
            outcome.partial += [(f"{folder.run}: {name}", reason) for name, reason in report.unusable]
    progress("night", len(folders), len(folders))


def _complete_catalog(lake: Path) -> None:
    """catalog.sql anew where a call ended between a run's commit and it."""
    commits = [(path / "manifest.json").stat().st_mtime_ns for path in runs_of(lake)]
    catalog = lake / CATALOG
    if commits and (not catalog.is_file() or catalog.stat().st_mtime_ns < max(commits)):
        refresh(lake)


def _reported(lake: Path) -> dict[str, str]:
    try:
        return dict(json.loads((lake / STATE).read_text(encoding="utf-8"))["reported"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError):
        raise LakeError("damaged", where=lake / STATE, todo="remove it: every run is then reported again") from None
