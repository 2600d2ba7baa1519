"""A connection with a run's tables, the parameters of run.toml and the queries of queries/attribution/."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.attribution.fits import make_fits
from pipeline.attribution.work import WORK_TABLES, columns_of
from pipeline.lake.layout import RunDir, of_rank, open_connection, quote, rank_file
from pipeline.model import categories, library
from pipeline.model.run import DEFAULT_STEP_PATTERN, RunConfig

if TYPE_CHECKING:
    import duckdb

# Names that Python makes, where SQL hands over to numerics.
MADE_BY_PYTHON: dict[str, Callable[[duckdb.DuckDBPyConnection], None]] = {"fits": make_fits}
# Queries without an effect where that table has no row (NEEDS) or has one (SPARES): then their table is empty.
NEEDS = {
    "_step_lacks": "_odd_steps",
    "_mixed_frames": "_mixed_periods",
    "_lost_idle": "losses",
    "_touched_windows": "_host_calls",
    "_host_frames": "_touched_windows",
    "_shared_messages": "_shared_nics",
    "_wait_pieces": "_wait_windows",
    "_culprit_timeline": "_wait_pieces",
    "_ctl_windows": "_ctl_occupancy",
    "_ctl_shares": "_ctl_occupancy",
    "_local_times": "_participants",
    "_arrivals": "_local_times",
}
SPARES = {
    "_period": "_step_ranges",
    "_optimizer_edges": "_step_ranges",
    "_steps_inferred": "_step_ranges",
    "_steps_window": "_step_ranges",
}
_NEVER = r"[^\s\S]"  # matches nothing, not even an empty text
_LIBRARY_DOMAINS = r"^(NCCL|nvshmem|CUB|CCCL|Thrust|TensorRT|cuDNN|cuBLAS.*|cuSPARSE|cuFFT|cuSOLVER)$"


def connect(
    run_dir: RunDir,
    config: RunConfig,
    *,
    rank: int | None = None,
    holding: Mapping[str, Sequence[Path]] | None = None,
    only: Mapping[str, str] | None = None,
    span: tuple[int, int] | None = None,
    threads: int = 2,
    memory_limit: str = "2GB",
) -> duckdb.DuckDBPyConnection:
    """A connection with the run's tables (of one rank, where given), work tables so far, and parameters.

    holding, only: as `RunDir.connect` has them; span: as `parameters`.
    """
    connection = run_dir.connect(rank=rank, holding=holding, only=only, threads=threads, memory_limit=memory_limit)
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
    parameters(connection, run_dir, config, span)
    return connection


def _node_messages(connection: duckdb.DuckDBPyConnection, run_dir: RunDir, rank: int) -> None:
    """The view `node_messages`: rdma_messages of the other ranks of the rank's node, for NICs that ranks share."""
    others = connection.execute(
        "SELECT r.rank FROM ranks AS r JOIN this_rank AS t ON r.node = t.node WHERE r.rank <> t.rank ORDER BY r.rank"
    ).fetchall()
    names = {rank_file(other) for (other,) in others}
    files = [file for file in run_dir.files("rdma_messages") if file.stem in names]
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
    return (needed is not None and not has_rows(connection, needed)) or (
        spared is not None and has_rows(connection, spared)
    )


def has_rows(connection: duckdb.DuckDBPyConnection, name: str) -> bool:
    """Whether a table has a row."""
    return bool(connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchall())


def ensure(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Make sure that a work or lake table exists: empty, in its schema, where nothing made it."""
    ensure_all(connection, [name])


def ensure_all(connection: duckdb.DuckDBPyConnection, names: Iterable[str]) -> None:
    """`ensure` for several tables at once."""
    there = {row[0] for row in connection.execute("SELECT table_name FROM information_schema.tables").fetchall()}
    absent = [name for name in dict.fromkeys(names) if name not in there]
    statements = [
        f"CREATE TEMP TABLE {name} ({', '.join(f'{column} {kind}' for column, kind in columns_of(name))})"
        for name in absent
    ]
    if statements:
        connection.execute("; ".join(statements))


def parameters(
    connection: duckdb.DuckDBPyConnection,
    run_dir: RunDir,
    config: RunConfig,
    span: tuple[int, int] | None = None,
) -> None:
    """The parameter tables: run_config, categories, evidence_levels, comm_groups, nics, run_span; this_rank comes with a rank.

    span: what `run_span` found; None: no row. Patterns are variables as well (`getvariable`): a regular expression that is a constant of the query is
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
    add_categories(connection)
    connection.execute("CREATE TEMP TABLE evidence_levels (evidence VARCHAR, strength INTEGER)")
    _fill(connection, "evidence_levels", [[level.value, n] for n, level in enumerate(categories.Evidence)])
    connection.execute("CREATE TYPE category_name AS ENUM (SELECT category FROM categories ORDER BY place)")
    connection.execute("CREATE TYPE evidence_name AS ENUM (SELECT evidence FROM evidence_levels ORDER BY strength)")
    connection.execute("CREATE TEMP TABLE comm_groups (group_id BIGINT, rank BIGINT)")
    _fill(connection, "comm_groups", [[n, rank] for n, ranks in enumerate(config.comm.groups) for rank in ranks])
    connection.execute("CREATE TEMP TABLE nics (rank BIGINT, nic VARCHAR)")
    _fill(connection, "nics", [[rank, nic] for rank, nic in sorted(network.nics.items())])
    connection.execute("CREATE TEMP TABLE run_span (first_ns BIGINT, last_ns BIGINT)")
    if span is not None:
        connection.execute("INSERT INTO run_span VALUES ($1, $2)", list(span))


def add_categories(connection: duckdb.DuckDBPyConnection) -> None:
    """The table `categories`: the tree of model/categories."""
    connection.execute(
        """CREATE TEMP TABLE categories (category VARCHAR, priority INTEGER, "group" VARCHAR, evidence VARCHAR,
            parent VARCHAR, headline VARCHAR, comm BOOLEAN, leaf_of VARCHAR, text VARCHAR,
            given_back INTEGER, place INTEGER)"""
    )
    _fill(connection, "categories", categories.rows())


def run_span(run_dir: RunDir) -> tuple[int, int] | None:
    """First start and last end of all ranks' GPU operations: windows of a run without steps are the same everywhere.

    Found once for all ranks: it goes through all of their rows.
    """
    files = run_dir.files("gpu_ops")
    if not files:
        return None
    listed = ", ".join(quote(str(file)) for file in files)
    connection = open_connection(threads=2)
    try:
        first, last = connection.execute(
            f"""SELECT min(start_ns), max(end_ns) FROM read_parquet([{listed}], hive_partitioning = false)
            WHERE rank IS NOT NULL AND end_ns >= start_ns"""
        ).fetchall()[0]
    finally:
        connection.close()
    return None if first is None else (first, last)


def _fill(connection: duckdb.DuckDBPyConnection, name: str, rows: Sequence[Sequence[object]]) -> None:
    """Insert rows in one statement, a list for each column: one statement a row costs a plan a row."""
    if rows:
        columns = ", ".join(f"unnest(${n})" for n in range(1, len(rows[0]) + 1))
        connection.execute(f"INSERT INTO {name} SELECT {columns}", [list(column) for column in zip(*rows, strict=True)])


def _number_group(pattern: str) -> int:
    """Which group of a step pattern is the step's number: the first named one, else the first; 0: none."""
    compiled = re.compile(pattern)
    return min(compiled.groupindex.values(), default=min(compiled.groups, 1))
