"""The timeline's queries on an `oracle.Trace`, in one in-memory database that serves many examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.attribution.database import connect, ensure, run_queries
from pipeline.attribution.engine import SWEEP
from pipeline.attribution.work import WORK_TABLES, columns_of
from pipeline.lake.layout import RunDir
from pipeline.model.run import RunConfig
from pipeline.model.schema import TABLES
from tests.attribution.build import DEFAULTS
from tests.attribution.oracle import Row, Trace

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb

JUDGED = ("_steps_found", "_odd_steps", "_step_lacks", "steps")
STEPS = ("_step_ranges", "_step_bins", "_step_operations", "_steps_nvtx", *JUDGED)
GIVEN = ("_network_candidates", "_wait_candidates", "_ctl_occupancy", "_operations", "_local_operations")
GUESSES = ("_period", "_optimizer_edges", "_steps_inferred", "_steps_window")
FILLED = ("gpu_ops", "nvtx", "cuda_api", "os_calls", "thread_states", "losses", *GIVEN)
ACCOUNT = ("_step_order", "_slots", "_last_launch", *SWEEP, "_shares", "_ctl_windows", "_ctl_shares", "breakdown")


def database(folder: Path) -> duckdb.DuckDBPyConnection:
    """Every event table and given work table empty, and the parameters of a default run.toml, rank 0."""
    connection = connect(RunDir(folder), RunConfig(), threads=1)
    for table in TABLES.values():
        if not table.derived:
            connection.execute(f"DROP VIEW {table.name}")
            _create(connection, table.name)
    for name in GIVEN:
        _create(connection, name)
    connection.execute("CREATE TEMP TABLE this_rank (rank BIGINT, node VARCHAR, pid BIGINT, nic VARCHAR)")
    connection.execute("INSERT INTO this_rank VALUES (0, 'n0', 1, NULL)")
    ensure(connection, "_bounds")
    # A trace always has step ranges, so what other runs would be cut by stays empty.
    run_queries(connection, ["_step_ranges", *GUESSES])
    return connection


def run(connection: duckdb.DuckDBPyConnection, trace: Trace, occupancy: list[Row] | None = None) -> None:
    """Fill the tables with a trace and run steps and sweep over it."""
    steps = [{"kind": "push_pop", "tid": 1, **row} for row in trace.steps]
    data = [{"kind": "push_pop", "text": "data_load", **row} for row in trace.data]
    operations = [
        {"rank": 0, "op_id": op_id, "start_ns": op["start_ns"], "end_ns": op["end_ns"]}
        for op_id, op in enumerate(op for op in trace.ops if op["op_class"] == "comm")
    ]
    _fill(
        connection,
        {
            "gpu_ops": trace.ops,
            "nvtx": steps + data,
            "cuda_api": trace.api,
            "os_calls": trace.os_calls,
            "thread_states": trace.states,
            "losses": trace.losses,
            "_network_candidates": trace.candidates,
            "_operations": operations,
            "_ctl_occupancy": occupancy or [],
        },
    )
    run_queries(connection, [*STEPS, *ACCOUNT])


def run_rows(connection: duckdb.DuckDBPyConnection, **tables: Sequence[Mapping[str, Any]]) -> None:
    """Steps and sweep over literal rows of one rank, with `build`'s defaults."""
    full = {name: [] for name in FILLED} | {
        name: [{**DEFAULTS.get(name, {}), **row} for row in rows] for name, rows in tables.items()
    }
    _fill(connection, full)
    run_queries(connection, [*STEPS, *GUESSES, *JUDGED, *ACCOUNT])


def shares(connection: duckdb.DuckDBPyConnection, step: int | None = None) -> dict[str, int]:
    """Attributed ns by category; categories with 0 left out."""
    where = "" if step is None else f"AND step = {step}"
    query = f"SELECT category, sum(attributed_ns)::BIGINT FROM breakdown WHERE attributed_ns > 0 {where} GROUP BY ALL ORDER BY ALL"
    return dict(rows(connection, query))


def _fill(connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    for name, rows in tables.items():
        connection.execute(f"DELETE FROM {name}")
        if rows:
            unknown = {key for row in rows for key in row} - {column for column, _ in columns_of(name)}
            assert not unknown - {"rank", "text"}, f"{name} has no column {sorted(unknown)}"
            literals = ", ".join(f"({', '.join(_literal(row.get(c)) for c, _ in columns_of(name))})" for row in rows)
            connection.execute(f"INSERT INTO {name} VALUES {literals}")
    connection.execute("DELETE FROM run_span")
    connection.execute("INSERT INTO run_span SELECT min(start_ns), max(end_ns) FROM gpu_ops HAVING count(*) > 0")


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def _create(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    columns = ", ".join(f"{column} {kind}" for column, kind in columns_of(name))
    connection.execute(f"CREATE TEMP TABLE {name} ({columns})")


assert set(GIVEN) <= set(WORK_TABLES)
