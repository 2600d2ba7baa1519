"""One run while it is read: what is known of it, what must be read, and what comes of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline import __version__
from pipeline.executor import Progress, WorkerDied, map_tasks
from pipeline.ingest.find import Found
from pipeline.ingest.identify import READER_VERSION, Identified, identify
from pipeline.ingest.inspect import Inspected, InspectTask, inspect_capture
from pipeline.ingest.manifest import Entry, anchor_entries, anchors_of, entry_of, match
from pipeline.ingest.read import CaptureResult, CaptureTask, ingest_capture
from pipeline.lake.layout import RunDir
from pipeline.model.capture import Status
from pipeline.model.errors import UnusableInput, UsageError
from pipeline.model.ranks import Ranking, natural
from pipeline.model.run import RunConfig
from pipeline.model.schema import TABLES

_FEW_INPUTS = 8
_FEW_BYTES = 2**28


@dataclass(frozen=True)
class IngestReport:
    """What an ingest did. changed: the run in the lake is another one than before.

    read, unchanged: names of captures. unusable, partial: (name, reason). rows: of all the run's captures.
    """

    run: str
    path: Path
    changed: bool
    read: tuple[str, ...]
    unchanged: tuple[str, ...]
    unusable: tuple[tuple[str, str], ...]
    partial: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    rows: int


class StagedRun:
    """A run in a transaction's folder, with what its manifest knows.

    given: the settings of this ingest, and path: the file they are from; without settings the manifest's hold.
    """

    def __init__(
        self,
        run_id: str,
        run_dir: RunDir,
        found: Found,
        given: RunConfig | None,
        path: Path | None,
        jobs: int | None,
        scheduler: str | None,
        progress: Progress,
    ) -> None:
        self.run_id = run_id
        self.run_dir = run_dir
        self.found = found
        self.manifest = run_dir.manifest
        self.config = given or RunConfig.model_validate(self.manifest.get("config", {}))
        self.config_path = self.manifest.get("config_path") if given is None else str(path.absolute()) if path else None
        self.jobs, self.scheduler, self.progress = jobs, scheduler, progress
        self.known: dict[str, Entry] = dict(self.manifest.get("captures", {}))
        self.anchors: dict[str, Entry] = {}
        self.notes: list[str] = []

    def read(self, target: Path) -> IngestReport:
        """Bring the staged folder to what the inputs say. target: where the run lies once it is committed.

        Raises UnusableInput where no input can be read, UsageError where ranks collide or a file that must be read
        again is gone.
        """
        inspected, self.notes = match(self._inspect(), self.known.values())
        self.anchors = anchor_entries(self.found.anchors, self.known.values())
        said = {entry["name"]: anchors_of(entry) for entry in self.anchors.values()}
        captures, ranking = identify(inspected, said, self.config)
        self.notes += ranking.notes
        now = {each.capture_id for each in captures} | self.anchors.keys()
        plan = self._plan(captures)
        if not self.manifest.get("whole", True) and (plan or now != self.known.keys()):
            # Compacted, or without its events: no capture's rows can be replaced alone.
            self.known = {}
            for table in TABLES:
                self.run_dir.remove(table)
            plan = self._plan(captures)
        if not any(each.inspected.usable for each in captures):
            raise _nothing_usable(captures, {})
        unchanged = [each.name for each in captures if self._is_known(each)]
        if (
            not plan
            and now == self.known.keys()
            and self.config.dump() == self.manifest.get("config", {})
            and self.manifest.get("status") == "done"
        ):
            return self._report(target, self.known, (), unchanged, changed=False)
        for capture_id in self.known.keys() - now:
            self._remove(capture_id)
        results = self._run(plan)
        entries = {
            each.capture_id: self.known[each.capture_id]
            if self._is_known(each)
            else entry_of(each, results.get(each.capture_id))
            for each in captures
        }
        entries |= self.anchors
        self._write_ranks(ranking)
        self._write_captures(entries)
        self._write_manifest(entries)
        if all(entry["status"] == Status.UNUSABLE for entry in entries.values()):
            raise _nothing_usable(captures, results)
        return self._report(target, entries, [each.name for each in plan], unchanged, changed=True)

    def _inspect(self) -> list[Inspected]:
        tasks = [InspectTask(each, self.config) for each in self.found.inputs]
        self.progress("inspect", 0, len(tasks))
        count = 0

        def done(_: InspectTask, __: Inspected) -> None:
            nonlocal count
            count += 1
            self.progress("inspect", count, len(tasks))

        # A process costs about as much as the inspection of a few small files.
        few = len(tasks) < _FEW_INPUTS and sum(_size(task.input.path) for task in tasks) < _FEW_BYTES
        return map_tasks(
            inspect_capture,
            tasks,
            jobs=1 if few else self.jobs,
            scheduler=None if few or self.jobs == 1 else self.scheduler,
            label=lambda task: str(task.input.path),
            done=done,
            on_death=lambda task, error: Inspected(task.input, None, "", 0, None, error.what),
        )

    def _is_known(self, each: Identified) -> bool:
        """The run has its rows, as reading it again would give them."""
        entry = self.known.get(each.capture_id)
        return entry is not None and entry["fingerprint"] == each.fingerprint

    def _plan(self, captures: Sequence[Identified]) -> list[Identified]:
        """What must be read."""
        plan = [each for each in captures if each.inspected.usable and not self._is_known(each)]
        for each in plan:
            if not each.inspected.input.path.exists():
                raise UsageError(
                    "its ranks, node or clock change with the new inputs, but its file is no longer there",
                    where=each.inspected.input.path,
                    todo="ingest all of the run's files together",
                )
        return plan

    def _run(self, plan: Sequence[Identified]) -> dict[str, CaptureResult]:
        """Read the captures, a task each; results by capture id."""
        tasks = [
            CaptureTask(
                capture=each.inspected.capture,
                capture_id=each.capture_id,
                name=each.name,
                node=each.node,
                ranks=each.ranks,
                clock=each.clock,
                config=self.config,
                run_dir=self.run_dir,
                threads=2 if len(plan) == 1 else 1,
            )
            for each in plan
            if each.inspected.capture is not None
        ]
        for task in tasks:
            self._remove(task.capture_id)
        total = sum(task.capture.bytes or 1 for task in tasks)
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

    def _remove(self, capture_id: str) -> None:
        for table in TABLES:
            self.run_dir.remove(table, capture_id)
        (self.run_dir.path / "side" / f"{capture_id}.bad_lines").unlink(missing_ok=True)

    def _write_ranks(self, ranking: Ranking) -> None:
        network = self.config.network
        rows = [{**row, "nic": network.nics.get(row["rank"]), "link_layer": network.link_layer} for row in ranking.rows]
        self._write_rows("ranks", rows)

    def _write_captures(self, entries: Mapping[str, Entry]) -> None:
        rows = [{**entry, "capture_id": capture_id} for capture_id, entry in sorted(entries.items())]
        self._write_rows("captures", rows)

    def _write_rows(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write what the rows have of the table's columns."""
        import pyarrow as pa

        schema = TABLES[table].arrow_schema()
        self.run_dir.remove(table, "ingest")
        if rows:
            full = [{name: row.get(name) for name in schema.names} for row in rows]
            self.run_dir.write_batches(table, "ingest", pa.Table.from_pylist(full, schema=schema).to_batches())

    def _write_manifest(self, entries: Mapping[str, Entry]) -> None:
        counts: Counter[str] = Counter()
        for entry in entries.values():
            counts.update(entry.get("rows_by_table", {}))
        self.run_dir.write_manifest(
            {
                "run": self.run_id,
                "versions": {"mfuloss": __version__, "reader": READER_VERSION},
                "status": "done",
                "config": self.config.dump(),
                "config_path": self.config_path,
                "captures": dict(entries),
                "rows": dict(sorted(counts.items())),
                **({"origin": self.manifest["origin"]} if "origin" in self.manifest else {}),
            }
        )

    def _report(
        self,
        target: Path,
        entries: Mapping[str, Entry],
        read: Sequence[str],
        unchanged: Sequence[str],
        *,
        changed: bool,
    ) -> IngestReport:
        ordered = sorted(entries.values(), key=lambda entry: natural(entry["name"]))

        def those(status: Status) -> tuple[tuple[str, str], ...]:
            return tuple((e["name"], e["reason"] or str(status)) for e in ordered if e["status"] == status)

        unusable = those(Status.UNUSABLE)
        bad = {name for name, _ in unusable}
        return IngestReport(
            run=self.run_id,
            path=target,
            changed=changed,
            read=tuple(name for name in read if name not in bad),
            unchanged=tuple(name for name in unchanged if name not in bad),
            unusable=unusable,
            partial=those(Status.PARTIAL),
            notes=tuple(self.notes),
            rows=sum(entry.get("rows") or 0 for entry in ordered),
        )


def _nothing_usable(captures: Sequence[Identified], results: Mapping[str, CaptureResult]) -> UnusableInput:
    inspected = [each.inspected for each in captures if not each.inspected.usable]
    reasons = [(str(each.input.path), each.reason) for each in inspected]
    reasons += [
        (str(each.inspected.input.path), results[each.capture_id].reason)
        for each in captures
        if each.capture_id in results
    ]
    path, reason = reasons[0]
    if len(reasons) == 1:
        return UnusableInput(reason or "unusable", where=path)
    others = "; ".join(f"{where}: {why}" for where, why in reasons[1:])
    return UnusableInput(f"{reason}; {others}; no usable input", where=path)


def _size(path: Path) -> int:
    """Bytes on disk of a file or folder; 0 where it can't be looked at."""
    try:
        return path.stat().st_size if path.is_file() else sum(p.stat().st_size for p in path.rglob("*"))
    except OSError:
        return 0
