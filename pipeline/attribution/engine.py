"""Runs the queries of queries/attribution/ over a staged run, in four stages.

`local` (once a rank) → `across` (once) → `account` (once a rank) → `summary` (once). What a stage makes for
the lake is written as that table, what it makes for later stages as `_work/<name>/`. docs/architecture.md
lists the tables; `pipeline.attribution.work` has the schemas of those that are no lake tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.attribution.findings import make_findings
from pipeline.attribution.fits import make_fits
from pipeline.attribution.summary import summarise
from pipeline.attribution.work import WORK_TABLES, columns_of
from pipeline.executor import map_tasks
from pipeline.lake.layout import PARQUET_OPTIONS, UNRANKED, RunDir, files_holding, of_rank, quote, rank_file
from pipeline.model import categories, library
from pipeline.model.errors import ConfigError
from pipeline.model.run import DEFAULT_STEP_PATTERN, RunConfig
from pipeline.model.schema import TABLES

if TYPE_CHECKING:
    import duckdb

# Order of the queries of each stage. A name without a file is an empty table of its declared schema.
LOCAL: tuple[str, ...] = (
    "_step_ranges",
    "_step_bins",
    "_step_operations",
    "_steps_nvtx",
    "_period",
    "_steps_inferred",
    "_steps_window",
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
ACCOUNT: tuple[str, ...] = (
    "_step_order",
    "_gpu_periods",
    "_mixed_periods",
    "_mixed_frames",
    "_gpu_frames",
    "_wakeups",
    "_shared_messages",
    "_served_messages",
    "_carried_messages",
    "_ctl_occupancy",
    "_network_candidates",
    "_wait_candidates",
    "_slots",
    "_lost_idle",
    "_last_launch",
    "_host_windows",
    "_call_codes",
    "_host_calls",
    "_touched_windows",
    "_host_frames",
    "_comm_frames",
    "_pieces",
    "_cells",
    "_shares",
    "_ctl_windows",
    "_ctl_shares",
    "segments",
    "_bounds",
    "breakdown",
    "_wait_pieces",
    "waits",
)
SUMMARY: tuple[str, ...] = (
    "_wait_owners",
    "_culprit_timeline",
    "delay_cost",
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
ACCOUNT_WRITES = ("_served_messages", "segments", "breakdown", "_wait_pieces", "waits")
SUMMARY_WRITES = ("delay_cost", "mfu", "run_facts", "findings")

# Names that Python makes, where SQL hands over to numerics.
MADE_BY_PYTHON: dict[str, Callable[[duckdb.DuckDBPyConnection], None]] = {"fits": make_fits}
# Work tables that replace a lake table of an earlier stage once more is known.
COMPLETES = {"_served_messages": "rdma_messages"}

# Queries without an effect where that table has no row (NEEDS) or has one (SPARES): then their table is empty.
NEEDS = {
    "_mixed_frames": "_mixed_periods",
    "_lost_idle": "losses",
    "_touched_windows": "_host_calls",
    "_host_frames": "_touched_windows",
    "_shared_messages": "_shared_nics",
    "_wait_pieces": "_wait_windows",
    "_culprit_timeline": "_wait_pieces",
    "_ctl_windows": "_ctl_occupancy",
    "_ctl_shares": "_ctl_occupancy",
}
SPARES = {"_period": "_step_ranges", "_steps_inferred": "_step_ranges", "_steps_window": "_step_ranges"}
# Queries whose rows come in the order of their table.
ORDERED = ("segments",)

_FILE = "attribution"
_OURS = ("steps", "rdma_messages", "segments", "breakdown", "waits", "delay_cost", "fits", "mfu", "findings")
_NEVER = r"[^\s\S]"  # matches nothing, not even an empty text
_LIBRARY_DOMAINS = r"^(NCCL|nvshmem|CUB|CCCL|Thrust|TensorRT|cuDNN|cuBLAS.*|cuSPARSE|cuFFT|cuSOLVER)$"

Progress = Callable[[str, int, int], None]
"""Called with (stage, ranks done, ranks in all)."""


@dataclass(frozen=True)
class RankTask:
    """One rank's share of a stage; travels to a worker process."""

    run_dir: Path
    rank: int
    config: RunConfig
    holding: Mapping[str, Sequence[Path]] | None = None
    threads: int = 1
    memory_limit: str = "1GB"


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
    tasks = [RankTask(run_dir.path, rank, config, holding[rank], threads=threads) for rank in ranks]

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
    return _rank_stage(task, ACCOUNT, ACCOUNT_WRITES)


def connect(
    run_dir: RunDir,
    config: RunConfig,
    *,
    rank: int | None = None,
    holding: Mapping[str, Sequence[Path]] | None = None,
    threads: int = 2,
    memory_limit: str = "2GB",
) -> duckdb.DuckDBPyConnection:
    """A connection with the run's tables (of one rank, where given), work tables so far, and parameters."""
    connection = run_dir.connect(rank=rank, holding=holding, threads=threads, memory_limit=memory_limit)
    for name in WORK_TABLES:
        files = sorted((run_dir.path / "_work" / name).glob("*.parquet"))
        if files:
            by_rank = rank is not None and any(column == "rank" for column, _ in columns_of(name))
            own = of_rank(files, rank) if by_rank else files
            # A rank that made nothing has no file of its own: any file has the schema.
            listed = ", ".join(quote(str(file)) for file in own or files[:1])
            where = f" WHERE rank = {rank:d}" if by_rank else ""
            connection.execute(
                f"CREATE TEMP VIEW {name} AS SELECT * FROM read_parquet([{listed}], hive_partitioning = false){where}"
            )
    if rank is not None:
        _node_messages(connection, run_dir, rank)
    parameters(connection, run_dir, config)
    return connection


def _node_messages(connection: duckdb.DuckDBPyConnection, run_dir: RunDir, rank: int) -> None:
    """The view `node_messages`: rdma_messages of every other rank, for NICs that ranks share."""
    files = run_dir.files("rdma_messages")
    listed = ", ".join(quote(str(file)) for file in files)
    connection.execute(
        f"""CREATE TEMP VIEW node_messages AS SELECT rank, node, nic, exit_ns, bytes, status
            FROM read_parquet([{listed}], hive_partitioning = false) WHERE rank <> {rank:d}"""
        if files
        else """CREATE TEMP TABLE node_messages
            (rank BIGINT, node VARCHAR, nic VARCHAR, exit_ns BIGINT, bytes BIGINT, status BIGINT)"""
    )


def run_queries(connection: duckdb.DuckDBPyConnection, names: Sequence[str]) -> None:
    """Run the SQL files in order; a name without a file becomes an empty table of its schema."""
    paths = library.paths()
    for name in names:
        if name in MADE_BY_PYTHON:
            MADE_BY_PYTHON[name](connection)
        elif _has_no_effect(connection, name):
            columns = ", ".join(f"{column} {kind}" for column, kind in columns_of(name))
            connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({columns})")
        elif name in paths:
            try:
                connection.execute(library.sql(name))
            except Exception as error:
                error.add_note(f"in {name}.sql")
                raise
        else:
            ensure(connection, name)


def _has_no_effect(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    needed, spared = NEEDS.get(name), SPARES.get(name)
    return (needed is not None and not _has_rows(connection, needed)) or (
        spared is not None and _has_rows(connection, spared)
    )


def _has_rows(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    return connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() is not None


def ensure(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Make sure that a work or lake table exists: empty, in its schema, where nothing made it."""
    _ensure_all(connection, [name])


def _ensure_all(connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
    there = {row[0] for row in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    absent = [name for name in dict.fromkeys(names) if name not in there]
    statements = [
        f"CREATE TEMP TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in columns_of(name))})"
        for name in absent
    ]
    if statements:
        connection.execute("; ".join(statements))


def _rank_stage(task: RankTask, names: Sequence[str], writes: Iterable[str]) -> int:
    run_dir = RunDir(task.run_dir)
    connection = connect(
        run_dir,
        task.config,
        rank=task.rank,
        holding=task.holding,
        threads=task.threads,
        memory_limit=task.memory_limit,
    )
    try:
        _ensure_earlier(connection, names)
        _forget(connection, names)
        run_queries(connection, names)
        for name in writes:
            _hand_on(run_dir, connection, name, rank_file(task.rank))
    finally:
        connection.close()
    return task.rank


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
    earlier = (*LOCAL_WRITES, *ACROSS_WRITES, "_wait_pieces", *derived)
    _ensure_all(connection, [name for name in earlier if name not in own])


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


def parameters(connection: duckdb.DuckDBPyConnection, run_dir: RunDir, config: RunConfig) -> None:
    """The parameter tables: run_config, categories, evidence_levels, comm_groups, nics, run_span; this_rank comes with a rank.

    Patterns are variables as well (`getvariable`): a regular expression that is a constant of the query is
    compiled once, one that comes from a table is compiled for each row.
    """
    pattern = config.steps.pattern or DEFAULT_STEP_PATTERN
    network = config.network
    connection.execute(
        """CREATE TEMP TABLE run_config AS SELECT
            $1::VARCHAR AS step_pattern, $2::VARCHAR AS step_kind, $3::DOUBLE AS beta_bytes_per_s,
            $4::BIGINT AS rtt0_ns, $5::BIGINT AS fetch_ns, $6::BIGINT AS clock_error_ns, $7::VARCHAR AS data_pattern,
            $8::INTEGER AS step_group, $9::VARCHAR AS library_domain_pattern, $10::BIGINT AS expected_ranks,
            $11::VARCHAR AS link_layer""",
        [
            pattern,
            config.steps.kind,
            network.beta_bytes_per_s,
            network.rtt0_ns,
            network.fetch_ns,
            network.clock_error_ns,
            "|".join(f"(?:{p})" for p in config.data.patterns) or _NEVER,
            _number_group(pattern),
            # A pattern that the user gave may mean a library's ranges; the default one never does.
            _NEVER if config.steps.pattern else _LIBRARY_DOMAINS,
            config.ranks.expected,
            network.link_layer,
        ],
    )
    for name in ("step_pattern", "step_group", "data_pattern", "library_domain_pattern"):
        connection.execute(f"SET VARIABLE {name} = (SELECT {name} FROM run_config)")
    connection.execute(
        """CREATE TEMP TABLE categories (category VARCHAR, priority INTEGER, "group" VARCHAR, evidence VARCHAR,
            parent VARCHAR, headline VARCHAR, comm BOOLEAN, leaf_of VARCHAR, text VARCHAR, place INTEGER)"""
    )
    _fill(connection, "categories", [[*row, place] for place, row in enumerate(categories.rows())])
    connection.execute("CREATE TEMP TABLE evidence_levels (evidence VARCHAR, strength INTEGER)")
    _fill(connection, "evidence_levels", [[level.value, n] for n, level in enumerate(categories.Evidence)])
    connection.execute("CREATE TYPE category_name AS ENUM (SELECT category FROM categories ORDER BY place)")
    connection.execute("CREATE TYPE evidence_name AS ENUM (SELECT evidence FROM evidence_levels ORDER BY strength)")
    connection.execute("CREATE TEMP TABLE comm_groups (group_id BIGINT, rank BIGINT)")
    _fill(connection, "comm_groups", [[n, rank] for n, ranks in enumerate(config.comm.groups) for rank in ranks])
    connection.execute("CREATE TEMP TABLE nics (rank BIGINT, nic VARCHAR)")
    _fill(connection, "nics", [[rank, nic] for rank, nic in sorted(network.nics.items())])
    connection.execute("CREATE TEMP TABLE run_span (first_ns BIGINT, last_ns BIGINT)")
    files = run_dir.files("gpu_ops")
    if files:
        # Of all ranks, also in a rank's connection: windows of a run without steps are the same everywhere.
        listed = ", ".join(quote(str(file)) for file in files)
        connection.execute(
            f"""INSERT INTO run_span SELECT min(start_ns), max(end_ns)
            FROM read_parquet([{listed}], hive_partitioning = false) WHERE rank IS NOT NULL AND end_ns >= start_ns"""
        )


def _fill(connection: duckdb.DuckDBPyConnection, name: str, rows: Sequence[Sequence[object]]) -> None:
    """Insert rows in one statement, a list for each column: one statement a row costs a plan a row."""
    if rows:
        columns = ", ".join(f"unnest(${n})" for n in range(1, len(rows[0]) + 1))
        connection.execute(f"INSERT INTO {name} SELECT {columns}", [list(column) for column in zip(*rows, strict=True)])


def _number_group(pattern: str) -> int:
    """Which group of a step pattern is the step's number: the first named one, else the first; 0: none."""
    compiled = re.compile(pattern)
    return min(compiled.groupindex.values(), default=min(compiled.groups, 1))


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
