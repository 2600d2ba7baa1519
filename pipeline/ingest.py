"""Inputs to lake: finds files, decides ranks, reads every capture in a task of its own, commits the run at once."""

from __future__ import annotations

import errno
import glob
import hashlib
import importlib
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline import __version__
from pipeline.clocks.anchors import ClockMap, clock_map, read_anchors
from pipeline.executor import Progress, WorkerDied, default_jobs, map_tasks, no_progress
from pipeline.lake.catalog import refresh
from pipeline.lake.layout import RunDir
from pipeline.lake.maintenance import check_lake
from pipeline.lake.transaction import Transaction
from pipeline.lake.writer import CaptureWriter
from pipeline.model.capture import Account, Anchor, Capture, Clock, Process, Status
from pipeline.model.errors import LakeError, MfulossError, UnusableInput, UsageError
from pipeline.model.ranks import GpuProcess, Ranking, assign_ranks, natural
from pipeline.model.run import RunConfig, load
from pipeline.model.schema import TABLES

ANCHORS = "anchors.jsonl"
RUN_TOML = "run.toml"
READER_VERSION = 2
"""Raised when a source or the schema changes so that what is in a lake must be read again."""


@dataclass(frozen=True)
class Input:
    """A file or folder export to read. `name` is stable between calls: from the input folder on.

    explicit: the user named it, rather than a folder that holds it.
    """

    path: Path
    name: str
    explicit: bool
    root: Path


@dataclass(frozen=True)
class Found:
    """What the given paths hold. ignored: files in folders that no source claims."""

    inputs: tuple[Input, ...]
    anchors: tuple[Input, ...]
    configs: tuple[Path, ...]
    ignored: tuple[Path, ...]


@dataclass(frozen=True)
class InspectTask:
    """Work order for `inspect_capture`."""

    input: Input
    config: RunConfig


@dataclass(frozen=True)
class Inspected:
    """An input with its content's hash; `capture` is None where it can't be read, and `reason` says why."""

    input: Input
    kind: str | None
    sha256: str
    bytes: int
    capture: Capture | None
    reason: str | None

    @property
    def usable(self) -> bool:
        return self.capture is not None and self.capture.status is not Status.UNUSABLE


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
    memory_limit: str = "600MB"


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


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did. changed: the run in the lake is another one than before."""

    run: str
    path: Path
    changed: bool
    read: tuple[str, ...]
    unchanged: tuple[str, ...]
    unusable: tuple[tuple[str, str], ...]
    partial: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    rows: int


def ingest(
    inputs: Sequence[str | Path],
    lake: str | Path,
    *,
    run: str | None = None,
    config: str | Path | RunConfig | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Progress = no_progress,
    attribute: bool = True,
    origin: Mapping[str, Any] | None = None,
) -> IngestReport:
    """Read captures into `lake` as one run, align their clocks and attribute the run.

    inputs: files, folders (searched through) or globs. run: the run's id (default: `[run] id`, else the
    name of the first input). config: run.toml (default: the one in the input folder). jobs: processes,
    scheduler: a Dask scheduler's address or `local:N`. With `attribute` off the run is committed as read.

    Known content is not read again; a file with a known name and new content replaces its rows; other
    files are added. Raises UnusableInput where nothing can be read, LakeError where the lake can't be
    written; in both cases the lake stays as it was. origin: JSON values that manifest.json keeps, in the same
    commit: what the nightly batch knows a run by.
    """
    lake = Path(lake)
    found = find_inputs(inputs)
    if not found.inputs:
        raise UnusableInput(
            "no input that any source can read",
            where=", ".join(str(each) for each in inputs),
            todo="try: mfuloss doctor INPUT",
        )
    given = _config(config, found)
    run_id = run or (given.run.id if given and given.run.id else None) or default_run_id(inputs)
    check_lake(lake)
    with Transaction(lake, run_id) as transaction:
        staged = _Staged(run_id, transaction.staging, found, given, jobs, scheduler, progress)
        report = staged.read(transaction.target)
        if report.changed and attribute:
            derive(transaction.staging, staged.config, jobs=jobs, scheduler=scheduler, progress=progress)
        told = origin is not None and transaction.staging.manifest.get("origin") != origin
        if told:
            transaction.staging.write_manifest({**transaction.staging.manifest, "origin": origin})
        if report.changed or told:
            transaction.commit()
    if report.changed:
        refresh(lake)
    return report


def derive(
    run_dir: RunDir,
    config: RunConfig,
    *,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Progress = no_progress,
) -> None:
    """Bring a staged run onto one clock and attribute it."""
    from pipeline.attribution import engine
    from pipeline.clocks.align import align

    workers = default_jobs() if jobs is None else jobs
    if run_dir.manifest.get("whole", True):
        # Compacted files are on the run clock already, and no longer say by how much they were moved.
        align(run_dir, config, jobs=workers, scheduler=scheduler)
    engine.attribute(run_dir, config, jobs=workers, scheduler=scheduler, progress=progress)


def attribute(
    lake: str | Path,
    run: str | None = None,
    *,
    config: str | Path | RunConfig | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    progress: Progress = no_progress,
) -> str:
    """Attribute a run of the lake again, for example after run.toml changed; its id.

    config: run.toml (default: the file that ingest used where it is still there, else what it said).
    Raises UsageError where the change decides how captures are read: then they must be ingested again.
    """
    from pipeline.lake.catalog import find_run

    lake = Path(lake)
    target = find_run(lake, run)
    manifest = target.manifest
    if manifest.get("events_dropped"):
        raise UsageError("the run's events were dropped", where=target.path, todo="ingest its captures again")
    if manifest.get("versions", {}).get("reader") != READER_VERSION:
        # Its tables may lack columns that the queries ask for.
        raise UsageError("another version of mfuloss read the run", where=target.path, todo="ingest its captures again")
    stored = RunConfig.model_validate(manifest.get("config", {}))
    source = manifest.get("config_path")
    if config is None and source and Path(source).is_file():
        config = Path(source)
    new = stored if config is None else config if isinstance(config, RunConfig) else load(Path(config))
    if _reading(new) != _reading(stored):
        raise UsageError(
            "[ranks], [comm] patterns or [network] nics changed, and they decide how captures are read",
            where=config,
            todo="ingest the captures again",
        )
    check_lake(lake)
    run_id = target.path.name.removeprefix("run=")
    with Transaction(lake, run_id) as transaction:
        derive(transaction.staging, new, jobs=jobs, scheduler=scheduler, progress=progress)
        transaction.staging.write_manifest({**manifest, "config": new.dump()})
        transaction.commit()
    refresh(lake)
    return run_id


# ---------------------------------------------------------------------------------------------------
# Finding


def find_inputs(inputs: Sequence[str | Path]) -> Found:
    """Expand files, folders and globs. Raises UsageError for a path that is not there."""
    from pipeline.sources import source_of

    captures: dict[Path, Input] = {}
    anchors: dict[Path, Input] = {}
    configs: dict[Path, None] = {}
    ignored: list[Path] = []

    def take(path: Path, root: Path, explicit: bool) -> None:
        path = Path(os.path.normpath(path))
        name = path.relative_to(root.parent).as_posix()
        if path.name == RUN_TOML:
            configs[path] = None
        elif path.name == ANCHORS:
            anchors[path] = Input(path, _printable(name), explicit, root)
        elif explicit or source_of(path) is not None:
            captures.setdefault(path, Input(path, _printable(name), explicit, root))
        else:
            ignored.append(path)

    def walk(folder: Path, root: Path, seen: frozenset[Path]) -> None:
        real = folder.resolve()
        if real in seen:
            return
        for path in sorted(folder.iterdir(), key=lambda each: natural(each.name)):
            if path.name.startswith("."):
                continue
            if path.is_dir() and source_of(path) is None:
                walk(path, root, seen | {real})
            else:
                take(path, root, explicit=False)

    for given in inputs:
        for path in _expand(given):
            path = Path(os.path.abspath(path))  # noqa: PTH100 - keeps symbolic links: names stay the user's
            try:
                if path.is_dir() and source_of(path) is None:
                    walk(path, path, frozenset())
                else:
                    take(path, path.parent, explicit=True)
                    for beside in (RUN_TOML, ANCHORS):
                        if (path.parent / beside).is_file():
                            take(path.parent / beside, path.parent, explicit=False)
            except OSError as error:
                raise UsageError(f"can't read it: {error.strerror}", where=error.filename or path) from None
    _drop_other_forms(captures)
    return Found(tuple(captures.values()), tuple(anchors.values()), tuple(configs), tuple(ignored))


def _expand(given: str | Path) -> list[Path]:
    path = Path(given)
    if path.exists():
        return [path]
    if glob.has_magic(str(given)):
        matches = sorted(glob.glob(str(given), recursive=True), key=natural)  # noqa: PTH207 - the pattern may be absolute
        if matches:
            return [Path(match) for match in matches]
        raise UsageError("nothing matches", where=given, todo="check the pattern")
    if path.is_symlink():
        raise UsageError("a link to a file that is not there", where=given)
    raise UsageError("no such file or folder", where=given, todo="check the path")


def _drop_other_forms(captures: dict[Path, Input]) -> None:
    """One report in several forms in one folder is one capture: its .sqlite, else a folder export, else .nsys-rep."""
    stems: dict[Path, list[Path]] = defaultdict(list)
    for path in captures:
        stem = re.sub(r"(?:\.nsys-rep|\.sqlite|[._](?:pqtdir|arwdir|parquetdir|arrowdir))$", "", str(path))
        if stem != str(path):
            stems[Path(stem)].append(path)

    def preference(path: Path) -> int:
        return 0 if path.suffix == ".sqlite" else 2 if path.suffix == ".nsys-rep" else 1

    for forms in stems.values():
        for path in sorted(forms, key=lambda each: (preference(each), str(each)))[1:]:
            if not captures[path].explicit:
                del captures[path]


def default_run_id(inputs: Sequence[str | Path]) -> str:
    """The first input's name (a folder's, or a file's without suffix), made fit to name a folder."""
    path = Path(os.path.abspath(_expand(inputs[0])[0]))  # noqa: PTH100
    name = path.name if path.is_dir() else path.stem
    return (re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-") or "run")[:128]


def _config(config: str | Path | RunConfig | None, found: Found) -> RunConfig | None:
    if isinstance(config, RunConfig):
        return config
    path = config_path(config, found)
    return None if path is None else load(path)


def config_path(config: str | Path | RunConfig | None, found: Found) -> Path | None:
    """The run.toml that holds: the one given, else the one nearest to the top of the inputs."""
    if isinstance(config, RunConfig):
        return None
    if config is not None:
        return Path(config)
    if not found.configs:
        return None
    depth = min(len(path.parts) for path in found.configs)
    top = [path for path in found.configs if len(path.parts) == depth]
    if len({path.read_bytes() for path in top}) > 1:
        raise UsageError(
            f"{len(top)} different run.toml files",
            where=", ".join(str(path) for path in top),
            todo="name one with --config",
        )
    return top[0]


# ---------------------------------------------------------------------------------------------------
# One run


class _Staged:
    """A run while it is read: knows what is there already, plans, runs the tasks, writes what they found."""

    def __init__(
        self,
        run_id: str,
        run_dir: RunDir,
        found: Found,
        given: RunConfig | None,
        jobs: int | None,
        scheduler: str | None,
        progress: Progress,
    ) -> None:
        self.run_id = run_id
        self.run_dir = run_dir
        self.found = found
        self.manifest = run_dir.manifest
        self.config = given or RunConfig.model_validate(self.manifest.get("config", {}))
        self.jobs, self.scheduler, self.progress = jobs, scheduler, progress
        self.known: dict[str, dict[str, Any]] = dict(self.manifest.get("captures", {}))
        self.notes: list[str] = []
        self._entries = self.known
        self._changed = False

    def read(self, target: Path) -> IngestReport:
        inspected = self._inspect(self.found.inputs)
        known = self._match(inspected)
        ranking, nodes = self._rank(known)
        self._ranking = ranking
        maps = self._clocks(known, nodes)
        plan, unchanged = self._plan(known, ranking, nodes, maps)
        if not self.manifest.get("whole", True) and (plan or self._now(known) != set(self.known)):
            # Compacted, or without its events: no capture's rows can be replaced alone.
            self.known = {}
            for table in TABLES:
                self.run_dir.remove(table)
            plan, unchanged = self._plan(known, ranking, nodes, maps)
        if not any(each.usable for each in known):
            self._nothing_usable(known)
        same = (
            not plan
            and self._now(known) == set(self.known)
            and self.config.dump() == self.manifest.get("config", {})
            and self.manifest.get("status") == "done"
        )
        if same:
            return self._report(target, (), unchanged)
        for capture_id in self._stale(known):
            self._remove(capture_id)
        results = self._run(plan)
        self._write_ranks(ranking, nodes, known)
        self._write_captures(known, nodes, maps, plan, results)
        if not any(entry["status"] != Status.UNUSABLE for entry in self._entries.values()):
            self._nothing_usable(known, results, plan)
        return self._report(target, tuple(task.name for task in plan), unchanged)

    def _report(self, target: Path, read: tuple[str, ...], unchanged: list[str]) -> IngestReport:
        entries = sorted(self._entries.values(), key=lambda entry: natural(entry["name"]))

        def those(status: Status) -> tuple[tuple[str, str], ...]:
            return tuple((e["name"], e["reason"] or str(status)) for e in entries if e["status"] == status)

        unusable = those(Status.UNUSABLE)
        bad = {name for name, _ in unusable}
        return IngestReport(
            run=self.run_id,
            path=target,
            changed=self._changed,
            read=tuple(name for name in read if name not in bad),
            unchanged=tuple(name for name in unchanged if name not in bad),
            unusable=unusable,
            partial=those(Status.PARTIAL),
            notes=tuple(self.notes),
            rows=sum(entry.get("rows") or 0 for entry in entries),
        )

    # -- what is there

    def _inspect(self, inputs: Sequence[Input]) -> list[Inspected]:
        tasks = [InspectTask(each, self.config) for each in inputs]
        self.progress("inspect", 0, len(tasks))
        count = 0

        def done(_: InspectTask, __: Inspected) -> None:
            nonlocal count
            count += 1
            self.progress("inspect", count, len(tasks))

        # A process costs about as much as the inspection of a few small files.
        jobs = 1 if len(tasks) < 8 and sum(_size(task.input.path) for task in tasks) < 2**28 else self.jobs
        return map_tasks(
            inspect_capture,
            tasks,
            jobs=jobs,
            scheduler=None if jobs == 1 else self.scheduler,
            label=lambda task: str(task.input.path),
            done=done,
            on_death=lambda task, error: Inspected(task.input, None, "", 0, None, error.what),
        )

    def _match(self, inspected: list[Inspected]) -> list[Inspected]:
        """The run's inputs after this ingest: the given ones, and the known ones that are not given again."""
        by_content: dict[str, Inspected] = {}
        result: list[Inspected] = []
        for each in inspected:
            twin = by_content.get(each.sha256) if each.sha256 else None
            if twin is not None:
                self.notes.append(f"{each.input.name}: same content as {twin.input.name}; read once")
                continue
            by_content[each.sha256] = each
            result.append(each)
        taken: set[str] = set()
        for index, each in enumerate(result):
            known = self._known_as(each, taken)
            if known is not None:
                taken.add(known["name"])
                result[index] = replace(each, input=replace(each.input, name=known["name"]))
        for entry in self.known.values():
            if entry["name"] in taken or entry["kind"] == "anchors":
                continue
            result.append(_remembered(entry))
        return sorted(result, key=lambda each: natural(each.input.name))

    def _known_as(self, each: Inspected, taken: set[str]) -> dict[str, Any] | None:
        free = [entry for entry in self.known.values() if entry["name"] not in taken]
        for entry in free:
            if each.sha256 and entry["sha256"] == each.sha256:
                return entry
        for entry in free:
            if entry["name"] == each.input.name:
                return entry
        name = each.input.name
        near = [e for e in free if name.endswith("/" + e["name"]) or str(e["name"]).endswith("/" + name)]
        return near[0] if len(near) == 1 else None

    # -- ranks, nodes, clocks

    def _rank(self, known: list[Inspected]) -> tuple[Ranking, dict[str, str]]:
        nodes = self._nodes(known)
        processes = [
            GpuProcess(each.input.name, nodes[each.input.name], process)
            for each in known
            if each.usable and each.capture is not None
            for process in each.capture.processes
            if process.gpus
        ]
        ranking = assign_ranks(processes, self.config.ranks)
        self.notes += ranking.notes
        return ranking, nodes

    def _nodes(self, known: list[Inspected]) -> dict[str, str]:
        """Node of each input: its own word, else that of its folder's other files, else the folder's name."""
        hosts: dict[str, set[str]] = defaultdict(set)
        for each in known:
            if each.capture is not None and each.capture.host:
                hosts[_folder(each.input.name)].add(each.capture.host)
        for name, anchors in self._anchors().items():
            hosts[_folder(name)] |= {anchor.node for anchor in anchors if anchor.node}
        result = {}
        for each in known:
            if each.capture is not None and each.capture.host:
                result[each.input.name] = each.capture.host
                continue
            folder = _folder(each.input.name)
            said = hosts.get(folder) or (hosts.get(_folder(folder)) if "/" in folder else None)
            fallback = folder.rsplit("/", 1)[-1] or each.input.path.parent.name or "node"
            result[each.input.name] = next(iter(said)) if said and len(said) == 1 else fallback
        return result

    def _anchors(self) -> dict[str, list[Anchor]]:
        if not hasattr(self, "_anchor_files"):
            self._anchor_entries: dict[str, dict[str, Any]] = {
                entry["name"]: entry for entry in self.known.values() if entry["kind"] == "anchors"
            }
            self._anchor_files: dict[str, list[Anchor]] = {
                name: [Anchor(**anchor) for anchor in entry.get("anchors", [])]
                for name, entry in self._anchor_entries.items()
            }
            for each in self.found.anchors:
                name = each.name
                near = [n for n in self._anchor_files if n.endswith("/" + name) or name.endswith("/" + n)]
                name = near[0] if len(near) == 1 else name
                sha, size = content_hash(each.path)
                entry: dict[str, Any] = {"name": name, "kind": "anchors", "sha256": sha, "bytes": size}
                entry |= {"path": _printable(str(each.path)), "status": str(Status.OK), "reason": None}
                try:
                    anchors = read_anchors(each.path)
                except UnusableInput as error:
                    anchors = []
                    entry |= {"status": str(Status.UNUSABLE), "reason": error.what}
                entry["anchors"] = [asdict(anchor) for anchor in anchors]
                self._anchor_files[name] = anchors
                self._anchor_entries[name] = entry
        return self._anchor_files

    def _clocks(self, known: list[Inspected], nodes: Mapping[str, str]) -> dict[str, ClockMap | None]:
        """The map onto its node's UTC of each input; None where no anchor tells."""
        by_node: dict[str, list[Anchor]] = defaultdict(list)
        by_folder: dict[str, list[Anchor]] = defaultdict(list)
        for name, anchors in self._anchors().items():
            for anchor in anchors:
                if anchor.node:
                    by_node[anchor.node].append(anchor)
                else:
                    by_folder[_folder(name)].append(anchor)
        result: dict[str, ClockMap | None] = {}
        for each in known:
            if each.capture is None:
                result[each.input.name] = None
                continue
            folder = _folder(each.input.name)
            node = nodes[each.input.name]
            anchors = (
                list(each.capture.anchors)
                or by_folder.get(folder)
                or by_node.get(node)
                or (by_folder.get(_folder(folder)) if "/" in folder else None)
                or []
            )
            result[each.input.name] = clock_map(anchors, each.capture.clock)
        return result

    # -- plan and run

    def _plan(
        self,
        known: list[Inspected],
        ranking: Ranking,
        nodes: Mapping[str, str],
        maps: Mapping[str, ClockMap | None],
    ) -> tuple[list[CaptureTask], list[str]]:
        plan: list[CaptureTask] = []
        unchanged: list[str] = []
        self._fingerprints: dict[str, str] = {}
        for each in known:
            name = each.input.name
            capture_id = capture_id_of(each.sha256, name)
            entry = self.known.get(capture_id)
            if not each.usable or each.capture is None:
                self._fingerprints[capture_id] = f"{READER_VERSION} unusable {each.reason}"
                if entry is not None and entry["fingerprint"] == self._fingerprints[capture_id]:
                    unchanged.append(name)
                continue
            ranks = self._mapping(each, ranking, nodes, maps[name])
            fingerprint = _fingerprint(ranks, nodes[name], maps[name], self.config)
            self._fingerprints[capture_id] = fingerprint
            if entry is not None and entry["fingerprint"] == fingerprint:
                unchanged.append(name)
                continue
            if not each.input.path.exists():
                raise UsageError(
                    "its ranks, node or clock change with the new inputs, but its file is no longer there",
                    where=each.input.path,
                    todo="ingest all of the run's files together",
                )
            plan.append(
                CaptureTask(
                    each.capture,
                    capture_id,
                    name,
                    nodes[name],
                    ranks,
                    maps[name],
                    self.config,
                    self.run_dir,
                )
            )
        return plan, unchanged

    def _mapping(
        self, each: Inspected, ranking: Ranking, nodes: Mapping[str, str], clock: ClockMap | None
    ) -> dict[int, int]:
        """Process key → rank in one capture. One that can't be put on the node's clock gets no ranks."""
        capture = each.capture
        if capture is None:
            return {}
        own = {
            process.key: ranking.ranks[each.input.name, process.key]
            for process in capture.processes
            if (each.input.name, process.key) in ranking.ranks
        }
        if clock is None and capture.clock in (Clock.BOOTTIME, Clock.MONOTONIC):
            return {}
        node = nodes[each.input.name]
        if not capture.processes:
            # A format that lists no processes: its rows are known by pid.
            return {pid: rank for (host, pid), rank in ranking.by_pid.items() if host == node}
        for process in capture.processes:
            if process.key in own or process.gpus:
                continue
            rank = ranking.rank_of(process, node, each.input.name)
            if rank is not None:
                own[process.key] = rank
        return own

    def _stale(self, known: list[Inspected]) -> list[str]:
        """Captures whose content is no longer the run's."""
        return [capture_id for capture_id in self.known if capture_id not in self._now(known)]

    def _now(self, known: list[Inspected]) -> set[str]:
        now = {capture_id_of(each.sha256, each.input.name) for each in known}
        return now | {capture_id_of(entry["sha256"], name) for name, entry in self._anchor_entries.items()}

    def _remove(self, capture_id: str) -> None:
        for table in TABLES:
            self.run_dir.remove(table, capture_id)
        (self.run_dir.path / "side" / f"{capture_id}.bad_lines").unlink(missing_ok=True)

    def _run(self, plan: list[CaptureTask]) -> dict[str, CaptureResult]:
        total = sum(task.capture.bytes or 1 for task in plan)
        threads = 2 if len(plan) == 1 else 1
        tasks = [replace(task, threads=threads) for task in plan]
        for task in tasks:
            self._remove(task.capture_id)
        finished = 0
        self.progress("read", 0, total)

        def done(task: CaptureTask, _: CaptureResult) -> None:
            nonlocal finished
            finished += task.capture.bytes or 1
            self.progress(f"read {task.name}", finished, total)

        def died(task: CaptureTask, error: WorkerDied) -> CaptureResult:
            self._remove(task.capture_id)
            return CaptureResult(task.capture_id, Status.UNUSABLE, error.what, died=True)

        results = map_tasks(
            ingest_capture,
            # Large ones first: the last one to end decides.
            sorted(tasks, key=lambda task: (-task.capture.bytes, task.name)),
            jobs=self.jobs,
            scheduler=self.scheduler,
            label=lambda task: str(task.capture.path),
            done=done,
            on_death=died,
        )
        return {result.capture_id: result for result in results}

    # -- what was found

    def _write_ranks(self, ranking: Ranking, nodes: Mapping[str, str], known: list[Inspected]) -> None:
        rows = []
        for row in ranking.rows:
            link = self.config.network.link_layer
            nic = self.config.network.nics.get(row["rank"])
            rows.append({**row, "nic": nic, "link_layer": link})
        self._write_rows("ranks", rows)

    def _write_captures(
        self,
        known: list[Inspected],
        nodes: Mapping[str, str],
        maps: Mapping[str, ClockMap | None],
        plan: list[CaptureTask],
        results: Mapping[str, CaptureResult],
    ) -> None:
        self._entries = {}
        self._changed = True
        for each in known:
            capture_id = capture_id_of(each.sha256, each.input.name)
            name = each.input.name
            result = results.get(capture_id)
            old = self.known.get(capture_id)
            if result is None and old is not None and old["fingerprint"] == self._fingerprints[capture_id]:
                self._entries[capture_id] = old
                continue
            entry = _entry(each, nodes[name], maps[name], result)
            if entry.get("status") == Status.OK and _gpus_without_rank(each, self._ranking):
                entry |= {"status": str(Status.PARTIAL), "reason": _NO_RANK}
            # A dead worker says nothing of its file: the next ingest tries again.
            again = result is not None and result.died
            entry["fingerprint"] = "try again" if again else self._fingerprints[capture_id]
            self._entries[capture_id] = entry
        for name, entry in self._anchor_entries.items():
            self._entries[capture_id_of(entry["sha256"], name)] = {**entry, "fingerprint": str(READER_VERSION)}
        self._write_rows(
            "captures",
            [{"capture_id": capture_id, **_row(entry)} for capture_id, entry in sorted(self._entries.items())],
        )
        counts: Counter[str] = Counter()
        for entry in self._entries.values():
            counts.update(entry.get("rows_by_table", {}))
        path = config_path(None, self.found)
        self.run_dir.write_manifest(
            {
                "run": self.run_id,
                "versions": {"mfuloss": __version__, "reader": READER_VERSION},
                "status": "done",
                "config": self.config.dump(),
                "config_path": str(path) if path else self.manifest.get("config_path"),
                "captures": self._entries,
                "rows": dict(sorted(counts.items())),
                **({"origin": self.manifest["origin"]} if "origin" in self.manifest else {}),
            }
        )

    def _write_rows(self, table: str, rows: list[dict[str, Any]]) -> None:
        import pyarrow as pa

        schema = TABLES[table].arrow_schema()
        self.run_dir.remove(table, "ingest")
        if rows:
            full = [{name: row.get(name) for name in schema.names} for row in rows]
            self.run_dir.write_batches(table, "ingest", pa.Table.from_pylist(full, schema=schema).to_batches())

    def _nothing_usable(
        self,
        known: list[Inspected],
        results: Mapping[str, CaptureResult] | None = None,
        plan: Sequence[CaptureTask] = (),
    ) -> None:
        reasons = [(str(each.input.path), each.reason) for each in known if not each.usable]
        reasons += [(str(task.capture.path), (results or {})[task.capture_id].reason) for task in plan]
        path, reason = reasons[0]
        if len(reasons) == 1:
            raise UnusableInput(reason or "unusable", where=path)
        others = "; ".join(f"{where}: {why}" for where, why in reasons[1:])
        raise UnusableInput(f"{reason}; {others}; no usable input", where=path)


# ---------------------------------------------------------------------------------------------------
# Tasks


def inspect_capture(task: InspectTask) -> Inspected:
    """Inspect one input; a top-level function so that any worker can run it."""
    path = task.input.path
    with ThreadPoolExecutor(max_workers=1) as pool:
        # While the content is hashed, the interpreter is free: to look at it, and to load what will read it.
        hashing = pool.submit(content_hash, path)
        kind, capture, reason = _inspect(task)
        for library in ("duckdb", "pyarrow.parquet"):
            importlib.import_module(library)
    try:
        sha, size = hashing.result()
    except OSError as error:
        return Inspected(task.input, kind, _name_hash(path), 0, None, f"can't read it: {error.strerror or error}")
    if capture is None:
        return Inspected(task.input, kind, sha, size, None, reason)
    return Inspected(task.input, kind, sha, size, replace(capture, bytes=size), capture.reason)


def _inspect(task: InspectTask) -> tuple[str | None, Capture | None, str | None]:
    """(kind, capture, None), or why there is none."""
    from pipeline.sources import source_of

    path = task.input.path
    kind = None
    try:
        if path.is_file() and path.stat().st_size == 0:
            raise UnusableInput("an empty file", where=path)
        if _is_lfs_pointer(path):
            raise UnusableInput("a Git LFS pointer, not the file itself", where=path, todo="run: git lfs pull")
        source = source_of(path)
        if source is None:
            raise UnusableInput("not a trace that any source can read", where=path, todo="try: mfuloss doctor")
        kind = source.KIND
        return kind, source.inspect(path, task.config), None
    except MfulossError as error:
        what = f"{error.what}; {error.todo}" if error.todo else error.what
        return kind, None, " ".join(what.split())
    except OSError as error:
        return kind, None, f"can't read it: {error.strerror or error}"
    except Exception as error:  # noqa: BLE001 - one file's surprise must not stop the others
        return kind, None, _surprise(error)


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
                memory_limit=task.memory_limit,
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
        if _disk_full(error):
            raise LakeError(
                "the disk is full; the lake is as it was", where=task.run_dir.path.parent.parent, todo="free some space"
            ) from None
        if os.environ.get("MFULOSS_DEBUG"):
            raise
        return CaptureResult(task.capture_id, Status.UNUSABLE, _surprise(error))
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


# ---------------------------------------------------------------------------------------------------
# Small things


def content_hash(path: Path) -> tuple[str, int]:
    """SHA-256 of a file's content (of a folder export: of its files' names and contents) and its bytes."""
    if path.is_file():
        return _digest(path), path.stat().st_size
    whole = hashlib.sha256()
    size = 0
    for each in sorted(p for p in path.rglob("*") if p.is_file()):
        whole.update(f"{each.relative_to(path).as_posix()}\0{_digest(each)}\n".encode())
        size += each.stat().st_size
    return whole.hexdigest(), size


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    # Larger pieces than file_digest's: after each the thread waits for its turn in the interpreter.
    piece = memoryview(bytearray(8 << 20))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(piece):
            digest.update(piece[:count])
    return digest.hexdigest()


def _printable(name: str) -> str:
    """A file's name as text that can be stored: bytes that are no UTF-8 as \\xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def capture_id_of(sha256: str, name: str) -> str:
    """First 16 hex digits of the SHA-256 over content hash and name."""
    return hashlib.sha256(f"{sha256}\0{name}".encode()).hexdigest()[:16]


def _name_hash(path: Path) -> str:
    return hashlib.sha256(b"unreadable\0" + os.fsencode(path.name)).hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else sum(p.stat().st_size for p in path.rglob("*"))
    except OSError:
        return 0


def _is_lfs_pointer(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size > 1024:
        return False
    with path.open("rb") as file:
        return file.read(40).startswith(b"version https://git-lfs.github.com/spec")


def _surprise(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return f"reading it failed: {type(error).__name__}: {text}"


def _disk_full(error: BaseException) -> bool:
    return (
        isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    ) or "No space left on device" in str(error)


def _folder(name: str) -> str:
    return name.rsplit("/", 1)[0] if "/" in name else ""


def _reading(config: RunConfig) -> dict[str, Any]:
    """What of run.toml decides how captures are read."""
    dump = config.dump()
    return {
        "ranks": dump.get("ranks"),
        "patterns": dump.get("comm", {}).get("patterns"),
        "nics": dump.get("network", {}).get("nics"),
        "link_layer": dump.get("network", {}).get("link_layer"),
    }


def _fingerprint(ranks: Mapping[int, int], node: str, clock: ClockMap | None, config: RunConfig) -> str:
    """Equal for equal rows: what, beside the content, decides what reading a capture gives."""
    reading = {name: value for name, value in _reading(config).items() if name != "ranks"}
    text = repr((READER_VERSION, sorted(ranks.items()), node, clock, sorted(reading.items(), key=str)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _entry(each: Inspected, node: str, clock: ClockMap | None, result: CaptureResult | None) -> dict[str, Any]:
    """A capture in the manifest."""
    capture = each.capture
    entry: dict[str, Any] = {
        "name": each.input.name,
        "path": _printable(str(each.input.path)),
        "kind": each.kind,
        "sha256": each.sha256,
        "bytes": each.bytes,
        "host": node,
        "status": str(Status.UNUSABLE),
        "reason": each.reason,
        "rows": 0,
    }
    if capture is None:
        return entry
    entry |= {
        "tool": capture.tool,
        "tool_version": capture.tool_version,
        "said_host": capture.host,
        "clock": str(capture.clock),
        "inspect_status": str(capture.status),
        "present": ", ".join(capture.present) or None,
        "missing": ", ".join(capture.missing) or None,
        "processes": [_process(process) for process in capture.processes],
        "anchors": [asdict(anchor) for anchor in capture.anchors],
        "notes": list(capture.notes),
    }
    if result is not None:
        entry |= {
            "status": str(result.status),
            "reason": result.reason,
            "rows": sum(result.rows.values()),
            "rows_by_table": dict(sorted(result.rows.items())),
            "lost_events": result.lost_events,
            "probe_cost_ns": result.probe_cost_ns,
            "probe_exit_ns": result.probe_exit_ns,
            "probe_call_ns": result.probe_call_ns,
            "bad_lines": result.bad_lines,
            "first_ns": result.first_ns,
            "last_ns": result.last_ns,
        }
        if clock is not None and result.first_ns is not None:
            # first_ns is on UTC already: what was added to reach it follows from the map at that instant.
            entry["offset_ns"] = _offset_at(clock, result.first_ns)
            entry["offset_error_ns"] = clock.error_ns
    return entry


_NO_RANK = "no rule gives its GPU processes a rank: its rows are in no breakdown; give [ranks] in run.toml"


def _gpus_without_rank(each: Inspected, ranking: Ranking) -> bool:
    processes = [] if each.capture is None else [p for p in each.capture.processes if p.gpus]
    return bool(processes) and not any((each.input.name, p.key) in ranking.ranks for p in processes)


def _offset_at(clock: ClockMap, utc_ns: int) -> int:
    """What the map added to the time that it put at `utc_ns`."""
    t = utc_ns - clock.offset_ns
    for _ in range(3):
        t += utc_ns - clock.at(t)
    return utc_ns - t


def _process(process: Process) -> dict[str, Any]:
    return {
        "key": process.key,
        "pid": process.pid,
        "name": process.name,
        "env": dict(process.env),
        "gpus": [asdict(gpu) for gpu in process.gpus],
    }


def _remembered(entry: dict[str, Any]) -> Inspected:
    """An input of the run that is not given again, as its manifest entry tells of it."""
    from pipeline.model.capture import Gpu

    path = Path(entry["path"])
    given = Input(path, entry["name"], False, path.parent)
    if "tool" not in entry:
        return Inspected(given, entry["kind"], entry["sha256"], entry["bytes"], None, entry["reason"])
    capture = Capture(
        path=path,
        kind=entry["kind"],
        tool=entry["tool"],
        tool_version=entry["tool_version"],
        host=entry["said_host"],
        clock=Clock(entry["clock"]),
        status=Status(entry["inspect_status"]),
        reason=entry["reason"],
        processes=tuple(
            Process(
                each["key"],
                each["pid"],
                each["name"],
                each["env"],
                tuple(Gpu(**gpu) for gpu in each["gpus"]),
            )
            for each in entry["processes"]
        ),
        anchors=tuple(Anchor(**anchor) for anchor in entry["anchors"]),
        present=tuple((entry["present"] or "").split(", ")) if entry["present"] else (),
        missing=tuple((entry["missing"] or "").split(", ")) if entry["missing"] else (),
        notes=tuple(entry["notes"]),
        bytes=entry["bytes"],
    )
    return Inspected(given, entry["kind"], entry["sha256"], entry["bytes"], capture, capture.reason)


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A capture's manifest entry as a row of the captures table."""
    names = set(TABLES["captures"].column_names)
    return {name: value for name, value in entry.items() if name in names}


class _Callable(ModuleType):
    """`pipeline.ingest` names this module and, in the package's documented API, its main function."""

    def __call__(self, *arguments: Any, **options: Any) -> IngestReport:
        return ingest(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
