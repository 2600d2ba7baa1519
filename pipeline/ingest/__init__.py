"""Inputs to lake, in stages: find the files, inspect them, identify node, ranks and clock, read each in a task.

`staged.StagedRun` takes a run through them; here it is put onto one clock, attributed and committed, all at once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pipeline.executor import Progress, default_jobs, no_progress
from pipeline.ingest.find import config_path, default_run_id, find_inputs
from pipeline.ingest.identify import READER_VERSION, reading
from pipeline.ingest.staged import IngestReport, StagedRun
from pipeline.lake.catalog import find_run, refresh
from pipeline.lake.layout import RunDir, run_of
from pipeline.lake.maintenance import check_lake
from pipeline.lake.transaction import Transaction
from pipeline.model.errors import UnusableInput, UsageError
from pipeline.model.run import RunConfig, load

__all__ = ["IngestReport", "attribute", "derive", "ingest"]


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
    path = None if isinstance(config, RunConfig) else config_path(config, found)
    given = config if isinstance(config, RunConfig) else load(path) if path else None
    run_id = run or (given.run.id if given and given.run.id else None) or default_run_id(inputs)
    check_lake(lake)
    with Transaction(lake, run_id) as transaction:
        staged = StagedRun(run_id, transaction.staging, found, given, path, jobs, scheduler, progress)
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
    if reading(new) != reading(stored):
        raise UsageError(
            "[ranks], [comm] patterns or [network] nics changed, and they decide how captures are read",
            where=config,
            todo="ingest the captures again",
        )
    check_lake(lake)
    run_id = run_of(target.path)
    with Transaction(lake, run_id) as transaction:
        derive(transaction.staging, new, jobs=jobs, scheduler=scheduler, progress=progress)
        transaction.staging.write_manifest({**manifest, "config": new.dump()})
        transaction.commit()
    refresh(lake)
    return run_id


class _Callable(ModuleType):
    """`pipeline.ingest` names this package and, in the package's documented API, its main function."""

    def __call__(self, *arguments: Any, **options: Any) -> IngestReport:
        return ingest(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
