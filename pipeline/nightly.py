"""The nightly batch: new runs of an inbox into the lake, each job against its own history, pages and metrics.

What is done is known by the lake alone: a run that the batch ingests keeps its folder's fingerprint in manifest.json,
in the same commit as its rows, so a call that dies anywhere is taken up by the next one. LAKE/nightly.json says of
which runs the verdict was reported; it is written last.
"""

from __future__ import annotations

import difflib
import errno
import fcntl
import hashlib
import json
import os
import re
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.executor import Progress, no_progress
from pipeline.ingest import ingest
from pipeline.lake.layout import RunDir, open_connection, run_of, runs_of
from pipeline.lake.maintenance import check_lake
from pipeline.lake.transaction import host_name
from pipeline.model.errors import (
    ConfigError,
    DiskFull,
    ExitCode,
    GateFailed,
    LakeError,
    MfulossError,
    UsageError,
    is_disk_full,
)
from pipeline.model.run import Regex, RunConfig
from pipeline.reports import history
from pipeline.reports.compare import SAME_MODEL_TOLERANCE

SCHEMA = "mfuloss.nightly/1"
CONFIG = "nightly.toml"
STATE = "nightly.json"
LOCK = ".nightly.lock"
_DAY = re.compile(r"(?:night|nightly|day|run)?[-_. ]?\d[\dTZ:._-]*", re.IGNORECASE)
"""A folder name that is a date or a number: 2026-01-31, 20260131T0400Z, night-07."""
_DAY_AT_END = re.compile(r"[-_. ](?:night|day|run)?[-_. ]?\d{2,}[\dTZ:._-]*$", re.IGNORECASE)


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class InboxSection(_Section):
    marker: str = "run.toml"
    """Glob of a file whose presence makes a folder a run."""
    settle_s: float = Field(default=60.0, ge=0)
    """A folder in which something changed less than this ago is still being written."""
    job: Regex | None = None
    """Regular expression over a run's folder below the inbox; its group `job` is the job's name."""


class VerdictSection(_Section):
    floor_points: float = Field(default=0.5, ge=0)
    mad_factor: float = Field(default=5.0, gt=0)
    min_nights: int = Field(default=5, ge=2)


class NightlyConfig(_Section):
    """nightly.toml, every key optional."""

    inbox: InboxSection = InboxSection()
    verdict: VerdictSection = VerdictSection()


@dataclass(frozen=True)
class Folder:
    """A run in the inbox. fingerprint: of its files' names, sizes and times; changed_ns: the last change of any."""

    path: Path
    run: str
    job: str
    fingerprint: str
    changed_ns: int


@dataclass(frozen=True)
class Series:
    """Nights that can be compared: one job, one model, size and hardware. key: its name in pages and metrics.

    before: what differs from the job's series before this one, in words.
    """

    key: str
    job: str
    identity: Mapping[str, Any]
    nights: tuple[history.Night, ...]
    verdicts: tuple[history.Verdict, ...]
    before: str | None = None


@dataclass
class Outcome:
    """What a call did. fresh: runs whose verdict was not reported before; failed: (run or folder, reason)."""

    read: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    partial: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    series: list[Series] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.PARTIAL if self.failed or self.partial else ExitCode.DONE

    def verdict_of(self, run: str) -> tuple[Series, history.Verdict] | None:
        return next(((s, v) for s in self.series for v in s.verdicts if v.run == run), None)


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
    settings = _settings(inbox, config)
    check_lake(lake)
    outcome = Outcome()
    with _lock(lake, outcome):
        _read_new(inbox, lake, settings, outcome, jobs, scheduler, progress)
        origins = _origins(lake)
        _complete_catalog(lake)
        outcome.series = _series(lake, origins, settings, history_days)
        reported = _reported(lake)
        prints = {run: str(manifest["origin"]["fingerprint"]) for run, manifest in origins.items()}
        outcome.fresh = [
            verdict.run
            for series in outcome.series
            for verdict in series.verdicts
            if reported.get(verdict.run) != prints[verdict.run]
        ]
        if out is not None:
            _write_pages(Path(out), lake, prints, outcome, history_days)
        if openmetrics is not None:
            from pipeline.reports import nights

            text = nights.openmetrics(outcome.series, _counts(outcome), time.time())
            _write(Path(openmetrics), text, outcome)
        if reported != prints:
            _write(lake / STATE, json.dumps({"schema": SCHEMA, "reported": prints}, indent=1, sort_keys=True), outcome)
    return outcome


def gate(outcome: Outcome, points: float) -> None:
    """Raise GateFailed if a run that is told for the first time lost more than `points`, beyond the noise."""
    failed = [
        (verdict, series)
        for series in outcome.series
        for verdict in series.verdicts
        if verdict.run in outcome.fresh and verdict.status == "worse" and (verdict.lost or 0.0) > points
    ]
    if failed:
        worst, series = max(failed, key=lambda each: (each[0].lost or 0.0, each[0].run))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise GateFailed(f"{sentence(series, worst)}; the gate allows {points:g}{more}", where=worst.run)


def lines(outcome: Outcome) -> list[str]:
    """What a call did, for a terminal or a mail: what got worse first."""
    from pipeline.reports import nights

    told = [found for run in outcome.fresh if (found := outcome.verdict_of(run)) is not None]
    loud = [each for each in told if each[1].status in ("worse", "shifted", "better", "unknown")]
    order = {"worse": 0, "unknown": 1, "shifted": 2, "better": 3}
    loud.sort(key=lambda each: (order[each[1].status], -(each[1].lost or 0.0), each[1].run))
    result = [f"{verdict.run}: {sentence(series, verdict)}" for series, verdict in loud]
    result += [
        f"{verdict.run}: new series of {s.job}: {s.before}"
        for s, verdict in told
        if s.before and verdict is s.verdicts[0]
    ]
    newest = [(s, s.verdicts[-1]) for s in outcome.series if s.verdicts and s.verdicts[-1].run in outcome.fresh]
    result += [f"{v.run}: {sentence(s, v)}" for s, v in newest if nights.still_worse(v)]
    quiet = {status: sum(v.status == status for _, v in told) for status in ("steady", "learning")}
    if not told and not outcome.read:
        result.append(f"nothing new: {len(outcome.unchanged)} runs unchanged")
    else:
        parts = [f"{len(outcome.read)} read", f"{len(outcome.unchanged)} unchanged"]
        parts += [f"{n} {status}" for status, n in quiet.items() if n]
        result.append(", ".join(parts))
    if outcome.waiting:
        result.append(f"left for later, still being written: {', '.join(outcome.waiting)}")
    return result


def sentence(series: Series, verdict: history.Verdict) -> str:
    """A verdict in words."""
    from pipeline.reports import nights

    return nights.sentence(series, verdict)


# ---------------------------------------------------------------------------------------------------
# Settings and the lock


def _settings(inbox: Path, config: str | Path | None) -> NightlyConfig:
    path = Path(config) if config is not None else inbox / CONFIG
    if config is None and not path.is_file():
        return NightlyConfig()
    try:
        return NightlyConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"can't read it: {error.strerror}", where=path) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"not TOML: {error}", where=path) from None
    except ValidationError as error:
        raise ConfigError(_problem(error), where=path) from None


def _problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    path = [str(part) for part in problem["loc"]]
    if problem["type"] != "extra_forbidden":
        return f"{'.'.join(path)}: {problem['msg']}"
    sections: dict[str, type[BaseModel]] = {"inbox": InboxSection, "verdict": VerdictSection}
    section = sections[path[0]] if len(path) > 1 else NightlyConfig
    known = sorted(section.model_fields)
    near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
    return f"unknown key {'.'.join(path)}; " + (f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}")


@contextmanager
def _lock(lake: Path, outcome: Outcome) -> Iterator[None]:
    """One call a lake at a time. The kernel drops the lock with its process, so a text that stays behind is stale."""
    boot = _boot_id()
    descriptor = os.open(lake / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        held = os.pread(descriptor, 4096, 0).decode("utf-8", "replace")
        try:
            # A record lock: unlike flock's it is not shared with children, who may outlive us.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise LakeError(f"can't lock the lake: {error.strerror}", where=lake / LOCK) from None
            who = _holder(held)
            raise UsageError(f"another nightly call is at work ({who})", where=lake, todo="wait for it") from None
        if held.strip():
            reason = "the machine was started anew since" if boot not in held else "it ended without clearing up"
            outcome.notes.append(f"stale lock of {_holder(held)}: {reason}")
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "boot_id": boot, "host": host_name()}).encode(), 0)
            yield
        except OSError as error:
            if is_disk_full(error):
                raise DiskFull(lake) from None
            raise
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _holder(text: str) -> str:
    try:
        raw = json.loads(text)
        return f"process {raw['pid']} on {raw['host']}"
    except (ValueError, KeyError, TypeError):
        return "unknown process"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"


# ---------------------------------------------------------------------------------------------------
# The inbox


def find_folders(inbox: Path, settings: NightlyConfig) -> list[Folder]:
    """Folders of the inbox that hold the marker, by path; nothing is looked for inside one, nor in hidden folders."""
    found = []
    for top, folders, files in os.walk(inbox):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        path = Path(top)
        if path != inbox and any(Path(name).match(settings.inbox.marker) for name in files):
            folders.clear()
            relative = path.relative_to(inbox).as_posix()
            fingerprint, changed_ns = _fingerprint(path)
            found.append(Folder(path, run_id_of(relative), job_of(relative, settings), fingerprint, changed_ns))
    return found


def run_id_of(relative: str) -> str:
    """A run's id from its folder below the inbox: moe/2026-01-31 → moe.2026-01-31. Other folder, other id."""
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_/-]{0,99}", relative)
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", relative.replace("/", ".")).lstrip("._-")[:100] or "run"
    return text if plain else f"{text}-{hashlib.sha256(relative.encode()).hexdigest()[:8]}"


def job_of(relative: str, settings: NightlyConfig) -> str:
    """The job's name: by the configured expression, else the path without what looks like a date or a number.

    moe/2026-01-31, 2026-01-31/moe and moe-2026-01-31 are all job moe.
    """
    if settings.inbox.job is not None:
        match = re.search(settings.inbox.job, relative)
        if match is not None:
            return match.groupdict().get("job") or match.group()
    parts = relative.split("/")
    kept = [part for part in parts if not _DAY.fullmatch(part)]
    if kept == parts:
        kept = parts[:-1] if len(parts) > 1 else [_DAY_AT_END.sub("", parts[0]) or parts[0]]
    return "/".join(kept) or "job"


def _fingerprint(folder: Path) -> tuple[str, int]:
    """Of names, sizes and times of the files below, and the last change of any.

    Change times, not modification times: a copy that keeps the latter looks old while it is being written.
    """
    digest = hashlib.sha256()
    changed_ns = folder.stat().st_ctime_ns
    for top, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(top) / name
            try:
                status = path.stat()
            except OSError:
                continue
            changed_ns = max(changed_ns, status.st_ctime_ns)
            relative = path.relative_to(folder).as_posix()
            digest.update(f"{relative}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest(), changed_ns


def _read_new(
    inbox: Path,
    lake: Path,
    settings: NightlyConfig,
    outcome: Outcome,
    jobs: int | None,
    scheduler: str | None,
    progress: Progress,
) -> None:
    known = {run: str(manifest["origin"]["fingerprint"]) for run, manifest in _origins(lake).items()}
    folders = find_folders(inbox, settings)
    for number, folder in enumerate(folders):
        progress("night", number, len(folders))
        if known.get(folder.run) == folder.fingerprint:
            outcome.unchanged.append(folder.run)
            continue
        now, changed_ns = _fingerprint(folder.path)
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
    from pipeline.lake.catalog import CATALOG, refresh

    commits = [(path / "manifest.json").stat().st_mtime_ns for path in runs_of(lake)]
    catalog = lake / CATALOG
    if commits and (not catalog.is_file() or catalog.stat().st_mtime_ns < max(commits)):
        refresh(lake)


# ---------------------------------------------------------------------------------------------------
# History


def _origins(lake: Path) -> dict[str, dict[str, Any]]:
    """Manifests of the runs that this batch ingested."""
    result = {}
    for path in runs_of(lake):
        manifest = RunDir(path).manifest
        if isinstance(manifest.get("origin"), dict) and manifest["origin"].get("kind") == "nightly":
            result[run_of(path)] = manifest
    return result


def _reported(lake: Path) -> dict[str, str]:
    try:
        return dict(json.loads((lake / STATE).read_text(encoding="utf-8"))["reported"])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError):
        raise LakeError("damaged", where=lake / STATE, todo="remove it: every run is then reported again") from None


def _series(
    lake: Path, origins: Mapping[str, dict[str, Any]], settings: NightlyConfig, history_days: float
) -> list[Series]:
    rules = history.Rules(
        floor_points=settings.verdict.floor_points,
        mad_factor=settings.verdict.mad_factor,
        min_nights=settings.verdict.min_nights,
        history_ns=round(history_days * history.DAY_NS),
    )
    measures = _measures(lake, origins)
    nights = [(_night(run, manifest, measures.get(run, {})), manifest) for run, manifest in origins.items()]
    nights.sort(key=lambda each: (str(each[1]["origin"]["job"]), each[0].at_ns, each[0].run))
    groups: list[tuple[str, dict[str, Any], list[history.Night]]] = []
    for night, manifest in nights:
        job, identity = str(manifest["origin"]["job"]), _identity(manifest, night)
        own = next((group for group in reversed(groups) if group[0] == job and _alike(group[1], identity)), None)
        if own is None:
            groups.append((job, identity, [night]))
        else:
            own[2].append(night)
    found: list[Series] = []
    for job, identity, members in groups:
        short = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:6]
        verdicts = tuple(history.judge(members, rules))
        before = _difference(found[-1].identity, identity) if found and found[-1].job == job else None
        found.append(Series(f"{job}@{short}", job, identity, tuple(members), verdicts, before))
    return found


def _alike(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two nights are of one series. FLOPs are often computed from rounded figures: as in comparisons, a
    difference within SAME_MODEL_TOLERANCE is none, lest a rounding hides a loss behind a new series."""
    flops = "model.flops_per_step"
    if flops in old and flops in new and abs(new[flops] / old[flops] - 1) <= SAME_MODEL_TOLERANCE:
        new = {**new, flops: old[flops]}
    return old == new


def _night(run: str, manifest: Mapping[str, Any], values: Mapping[str, float]) -> history.Night:
    config = RunConfig.model_validate(manifest.get("config", {}))
    firsts = [entry["first_ns"] for entry in manifest.get("captures", {}).values() if entry.get("first_ns")]
    at_ns = config.run.started_ns or min(firsts, default=0)
    findings = frozenset(name.removeprefix("finding:") for name in values if name.startswith("finding:"))
    return history.Night(run, at_ns, {n: v for n, v in values.items() if not n.startswith("finding:")}, findings)


def _identity(manifest: Mapping[str, Any], night: history.Night) -> dict[str, Any]:
    """What must be equal for two nights to be compared, by the key that says it. A lost rank is no other size."""
    config = manifest.get("config", {})
    identity = {f"model.{key}": value for key, value in config.get("model", {}).items()}
    identity |= {f"hardware.{key}": value for key, value in config.get("hardware", {}).items()}
    identity["steps.kind"] = config.get("steps", {}).get("kind", "training")
    identity["ranks"] = config.get("ranks", {}).get("expected") or int(night.measures.get("ranks", 0))
    return dict(sorted(identity.items()))


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    changed = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    return ", ".join(f"{key} {old.get(key, 'unset')} → {new.get(key, 'unset')}" for key in changed)


def _measures(lake: Path, runs: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    from pipeline.lake.catalog import table_views
    from pipeline.model.library import sql

    result: dict[str, dict[str, float]] = {}
    connection = open_connection(threads=2)
    try:
        for table, statement in table_views(Path(os.path.abspath(lake))):  # noqa: PTH100 - keeps symbolic links
            if table in ("mfu", "steps", "findings"):
                connection.execute(statement)
        connection.execute(sql("nightly_measures"))
        for run, measure, value in connection.execute(
            "SELECT run, measure, value FROM nightly_measures ORDER BY run, measure"
        ).fetchall():
            if run in runs:
                result.setdefault(run, {})[measure] = float(value)
    finally:
        connection.close()
    return result


# ---------------------------------------------------------------------------------------------------
# Pages


def _counts(outcome: Outcome) -> dict[str, int]:
    return {
        "read": len(outcome.read),
        "unchanged": len(outcome.unchanged),
        "waiting": len(outcome.waiting),
        "failed": len(outcome.failed),
    }


def as_json(series: Sequence[Series], reports: Mapping[str, str], history_days: float) -> dict[str, Any]:
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


def _write_pages(out: Path, lake: Path, prints: Mapping[str, str], outcome: Outcome, history_days: float) -> None:
    from pipeline.reports import nights, render

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
            _write(page, shown if isinstance(shown, str) else shown.decode(), outcome)
        done[run] = fingerprint
    _write(out / "index.html", nights.index(outcome.series, done), outcome)
    content = json.dumps(as_json(outcome.series, done, history_days), ensure_ascii=False, indent=1, allow_nan=False)
    # Last: it says which pages are up to date.
    _write(out / "nightly.json", content + "\n", outcome)


def _pages(out: Path) -> dict[str, str]:
    try:
        return dict(json.loads((out / "nightly.json").read_text(encoding="utf-8"))["reports"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _write(path: Path, text: str, outcome: Outcome) -> None:
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
