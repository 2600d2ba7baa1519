"""Runs the queries of queries/attribution/ over a staged run, in four stages.

`local` (once a rank) → `across` (once) → `account` (once a rank) → `summary` (once). What a stage makes for
the lake is written as that table, what it makes for later stages as `_work/<name>/`. docs/architecture.md
lists the tables; `pipeline.attribution.work` has the schemas of those that are no lake tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.attribution.database import connect, ensure, ensure_all, has_rows, run_queries, run_span
from pipeline.attribution.findings import make_findings
from pipeline.attribution.summary import summarise
from pipeline.attribution.windows import Window, windows_of
from pipeline.attribution.work import WORK_TABLES, columns_of
from pipeline.executor import map_tasks
from pipeline.lake.layout import PARQUET_OPTIONS, UNRANKED, RunDir, files_holding, of_rank, quote, rank_file
from pipeline.model.errors import ConfigError
from pipeline.model.run import DEFAULT_STEP_PATTERN, RunConfig
from pipeline.model.schema import TABLES

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

# Order of the queries of each stage. A name without a file is an empty table of its declared schema.
LOCAL: tuple[str, ...] = (
    "_step_ranges",
    "_step_bins",
    "_step_operations",
    "_steps_nvtx",
    "_period",
    "_optimizer_edges",
    "_steps_inferred",
    "_steps_window",
    "_steps_found",
    "_odd_steps",
    "_step_lacks",
    "steps",
    "_operations",
    "_op_windows",
    "_wakeups",
    "_queue_pairs",
    "_posts",
    "_completions",
    "_pairs",
    "rdma_messages",
    "_op_network",
    "_message_spans",
    "_fit_samples",
    "_devices",
)
ACROSS: tuple[str, ...] = ("_shared_nics", "_participants", "_local_operations", "_wait_windows", "fits")
# The stage `account` in three parts: what needs the whole rank, the sweep, which goes window by window, and what needs
# its results for the whole rank.
PREPARE: tuple[str, ...] = (
    "_step_order",
    "_wakeups",
    "_shared_messages",
    "_served_messages",
    "_carried_messages",
    "_ctl_occupancy",
    "_network_candidates",
    "_wait_candidates",
    "_slots",
    "_last_launch",
)
SWEEP: tuple[str, ...] = (
    "_gpu_periods",
    "_mixed_periods",
    "_mixed_frames",
    "_gpu_frames",
    "_lost_idle",
    "_host_windows",
    "_call_codes",
    "_host_calls",
    "_touched_windows",
    "_host_frames",
    "_comm_frames",
    "_pieces",
    "_cells",
    "segments",
)
CLOSE: tuple[str, ...] = (
    "_shares",
    "_ctl_windows",
    "_ctl_shares",
    "_bounds",
    "breakdown",
    "_wait_pieces",
    "waits",
    "_local_times",
)
ACCOUNT = (*PREPARE, *SWEEP, *CLOSE)
SUMMARY: tuple[str, ...] = (
    "_wait_owners",
    "_culprit_timeline",
    "delay_cost",
    "_arrivals",
    "_counted_steps",
    "_mfu_cells",
    "_source_facts",
    "_coverage_facts",
)

# What each stage hands on.
LOCAL_WRITES = (
    "steps",
    "_operations",
    "_op_windows",
    "rdma_messages",
    "_op_network",
    "_message_spans",
    "_fit_samples",
    "_devices",
)
UNRANKED_WRITES = ("rdma_messages", "_fit_samples")
"""Without a rank there are no steps and no operations, but posts still pair with completions."""
ACROSS_WRITES = ("_shared_nics", "_participants", "_local_operations", "_wait_windows", "fits", "_links")
ACCOUNT_WRITES = ("_served_messages", "breakdown", "_wait_pieces", "waits", "_local_times")
SUMMARY_WRITES = ("delay_cost", "mfu", "run_facts", "findings")

# Work tables that replace a lake table of an earlier stage once more is known.
COMPLETES = {"_served_messages": "rdma_messages"}
SWEEP_NEEDS = ("_step_order", "_slots", "_network_candidates", "_wait_candidates", "_last_launch")
"""What the sweep needs of `PREPARE`."""

# Queries whose rows come in the order of their table.
ORDERED = ("segments",)

_FILE = "attribution"
_OURS = ("steps", "rdma_messages", "segments", "breakdown", "waits", "delay_cost", "fits", "mfu", "findings")
Progress = Callable[[str, int, int], None]
"""Called with (stage, ranks done, ranks in all)."""


@dataclass(frozen=True)
class RankTask:
    """One rank's share of a stage; travels to a worker process."""

    run_dir: Path
    rank: int
    config: RunConfig
    holding: Mapping[str, Sequence[Path]] | None = None
    span: tuple[int, int] | None = None
    threads: int = 1
    memory_mb: int = 1000


def attribute(
    run_dir: RunDir,
    config: RunConfig,
    *,
    jobs: int = 1,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Compute the derived tables of a staged run, replacing those that are there.

    jobs: worker processes for the stages that run once a rank. scheduler: address of a Dask scheduler to
    run them there instead. Raises ConfigError for a pattern in run.toml that SQL's engine can't run.
    """
    for table in _OURS:
        run_dir.remove(table)
    run_dir.remove("run_facts", _FILE)
    _clear_work(run_dir)
    ranks = _ranks(run_dir, config)
    workers = max(1, min(jobs, len(ranks)))
    threads = 2 if workers == 1 else 1
    holding = files_holding(run_dir, ranks)
    span = run_span(run_dir)
    tasks = [RankTask(run_dir.path, rank, config, holding[rank], span, threads) for rank in ranks]

    unranked = [RankTask(run_dir.path, UNRANKED, config, threads=threads)] * _posts_without_rank(run_dir)
    _map("local", attribute_rank_local, [*tasks, *unranked], workers, scheduler, progress)
    _across(run_dir, config)
    _map("account", attribute_rank_account, tasks, workers, scheduler, progress)
    _summary(run_dir, config)


def attribute_rank_local(task: RankTask) -> int:
    """Stage `local` of one rank: its steps, operations and messages. Returns the rank."""
    return _rank_stage(task, LOCAL, UNRANKED_WRITES if task.rank == UNRANKED else LOCAL_WRITES)


def attribute_rank_account(task: RankTask) -> int:
    """Stage `account` of one rank: its segments, breakdown and waits. Returns the rank."""
    run_dir = RunDir(task.run_dir)
    connection = _rank_connection(task, ACCOUNT)
    try:
        run_queries(connection, PREPARE)
        windows = windows_of(connection)
        if windows:
            _sweep_windows(task, connection, windows)
        else:
            run_queries(connection, SWEEP)
            _hand_on(run_dir, connection, "segments", rank_file(task.rank))
        run_queries(connection, CLOSE)
        for name in ACCOUNT_WRITES:
            _hand_on(run_dir, connection, name, rank_file(task.rank))
    finally:
        connection.close()
    return task.rank


def _sweep_windows(task: RankTask, connection: duckdb.DuckDBPyConnection, windows: Sequence[Window]) -> None:
    """The sweep of a rank, as many windows at a time as the task has threads; its tables for what closes the stage.

    Threads rather than processes: the work is DuckDB's, which holds no lock, and nothing has to start.
    """
    import pyarrow as pa

    given = {name: connection.table(name).to_arrow_table() for name in SWEEP_NEEDS}
    with_frames = has_rows(connection, "_ctl_occupancy")
    with ThreadPoolExecutor(task.threads) as pool:
        swept = list(
            pool.map(lambda part: _sweep_window(task, part, windows[part], given, with_frames), range(len(windows)))
        )
    for name, tables in zip(("_cells", "_comm_frames"), zip(*swept, strict=True), strict=True):
        connection.register(name, pa.concat_tables(tables))
    # A window of steps without length has no segment and no file.
    files = ", ".join(quote(str(file)) for file in of_rank(RunDir(task.run_dir).files("segments"), task.rank))
    if files:
        connection.execute(f"CREATE TEMP VIEW segments AS FROM read_parquet([{files}], hive_partitioning = false)")
    else:
        ensure(connection, "segments")


def _sweep_window(
    task: RankTask, part: int, window: Window, given: Mapping[str, pa.Table], with_frames: bool
) -> tuple[pa.Table, pa.Table]:
    """One window's segments into a file; its `_cells`, and its `_comm_frames` where they are asked for."""
    import pyarrow.compute as pc

    connection = _rank_connection(task, (*SWEEP, *SWEEP_NEEDS), window)
    try:
        for name, table in given.items():
            if name == "_step_order":
                ordinal = table["ordinal"]
                kept = table.filter(
                    pc.and_(pc.greater_equal(ordinal, window.first), pc.less_equal(ordinal, window.last))
                )
            elif "start_ns" in table.column_names:
                kept = table.filter(
                    pc.and_(pc.greater(table["end_ns"], window.start_ns), pc.less(table["start_ns"], window.end_ns))
                )
            else:
                kept = table
            connection.register(name, kept)
        run_queries(connection, SWEEP)
        _hand_on(RunDir(task.run_dir), connection, "segments", rank_file(task.rank, part))
        frames = connection.sql(f"FROM _comm_frames {'' if with_frames else 'LIMIT 0'}").to_arrow_table()
        return connection.table("_cells").to_arrow_table(), frames
    finally:
        connection.close()


def _rank_stage(task: RankTask, names: Sequence[str], writes: Iterable[str]) -> int:
    connection = _rank_connection(task, names)
    try:
        run_queries(connection, names)
        for name in writes:
            _hand_on(RunDir(task.run_dir), connection, name, rank_file(task.rank))
    finally:
        connection.close()
    return task.rank


def _rank_connection(task: RankTask, makes: Sequence[str], window: Window | None = None) -> duckdb.DuckDBPyConnection:
    """A rank's connection for queries that make the named tables; of one window, a share of the rank's threads."""
    connection = connect(
        RunDir(task.run_dir),
        task.config,
        rank=task.rank,
        holding=task.holding,
        only=None if window is None else window.conditions(),
        span=task.span,
        threads=task.threads if window is None else 1,
        memory_limit=f"{task.memory_mb if window is None else task.memory_mb // task.threads}MB",
    )
    _ensure_earlier(connection, makes)
    _forget(connection, makes)
    return connection


def _forget(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> None:
    """Drop the views of what a stage is about to make: other ranks' files of it are there already."""
    views = {row[0] for row in connection.execute("SELECT view_name FROM duckdb_views() WHERE temporary").fetchall()}
    for name in views & set(names):
        connection.execute(f"DROP VIEW {name}")


def _across(run_dir: RunDir, config: RunConfig) -> None:
    connection = connect(run_dir, config)
    try:
        _ensure_earlier(connection, ACROSS)
        run_queries(connection, ACROSS)
        for name in ACROSS_WRITES:
            _hand_on(run_dir, connection, name, _FILE)
    finally:
        connection.close()


def _summary(run_dir: RunDir, config: RunConfig) -> None:
    connection = connect(run_dir, config)
    try:
        _ensure_earlier(connection, (*SUMMARY, *SUMMARY_WRITES))
        _forget(connection, (*SUMMARY, *SUMMARY_WRITES))
        run_queries(connection, SUMMARY)
        summarise(connection, config)
        connection.execute("INSERT INTO run_facts SELECT name, value, text FROM _coverage_facts")
        make_findings(connection)
        for name in SUMMARY_WRITES:
            _hand_on(run_dir, connection, name, _FILE)
    finally:
        connection.close()


def _ensure_earlier(connection: duckdb.DuckDBPyConnection, own: Sequence[str]) -> None:
    """Every derived and handed-on table that this stage does not make itself, empty where nobody made it."""
    derived = [table.name for table in TABLES.values() if table.derived]
    earlier = (*LOCAL_WRITES, *ACROSS_WRITES, "_wait_pieces", "_local_times", *derived)
    ensure_all(connection, [name for name in earlier if name not in own])


def _hand_on(run_dir: RunDir, connection: duckdb.DuckDBPyConnection, name: str, file: str) -> None:
    if name in COMPLETES:
        table = TABLES[COMPLETES[name]]
        run_dir.write(table.name, file, connection, f"SELECT {', '.join(table.column_names)} FROM {name}")
        return
    if name in TABLES:
        run_dir.write(name, file, connection, f"SELECT * FROM {name}", ordered=name in ORDERED)
        return
    folder = run_dir.path / "_work" / name
    folder.mkdir(parents=True, exist_ok=True)
    columns = ", ".join(f"CAST({column} AS {kind}) AS {column}" for column, kind in columns_of(name))
    # Workers of other ranks look into the folder at any moment: a file appears there whole or not at all.
    partial = folder / f"{file}.partial"
    connection.execute(f"COPY (SELECT {columns} FROM {name}) TO {quote(str(partial))} ({PARQUET_OPTIONS})")
    partial.replace(folder / f"{file}.parquet")


def _clear_work(run_dir: RunDir) -> None:
    for name in WORK_TABLES:
        for file in (run_dir.path / "_work" / name).glob("*.parquet"):
            file.unlink()


def _ranks(run_dir: RunDir, config: RunConfig) -> dict[int, str | None]:
    """The run's ranks with their nodes."""
    connection = run_dir.connect()
    try:
        _check_patterns(connection, config)
        rows = connection.execute(
            "SELECT rank, max(node) FROM ranks WHERE rank IS NOT NULL GROUP BY rank ORDER BY rank"
        )
        return {int(rank): node for rank, node in rows.fetchall()}
    finally:
        connection.close()


def _posts_without_rank(run_dir: RunDir) -> bool:
    connection = run_dir.connect(rank=UNRANKED)
    try:
        return bool(connection.execute("FROM rdma_posts LIMIT 1").fetchall())
    finally:
        connection.close()


def _check_patterns(connection: duckdb.DuckDBPyConnection, config: RunConfig) -> None:
    import duckdb

    patterns = [("steps.pattern", config.steps.pattern or DEFAULT_STEP_PATTERN)]
    patterns += [("data.patterns", pattern) for pattern in config.data.patterns]
    for key, pattern in patterns:
        try:
            connection.execute("SELECT regexp_matches('', $1)", [pattern])
        except duckdb.Error:
            raise ConfigError(
                f"{key}: {pattern!r} uses something that RE2 has not",
                where="run.toml",
                todo="no look-around, no back-references",
            ) from None


def _map(
    stage: str,
    function: Callable[[RankTask], int],
    tasks: Sequence[RankTask],
    workers: int,
    scheduler: str | None,
    progress: Progress | None,
) -> None:
    finished = 0

    def done(_: RankTask, __: int) -> None:
        nonlocal finished
        finished += 1
        if progress is not None:
            progress(stage, finished, len(tasks))

    map_tasks(
        function, tasks, jobs=workers, scheduler=scheduler, label=lambda task: f"rank {task.rank}, {stage}", done=done
    )
