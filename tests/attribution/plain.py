"""A plain DuckDB with the lake's tables, work tables and parameters, for tests of single SQL files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

import duckdb

from pipeline.attribution.work import WORK_TABLES, columns_of
from pipeline.lake.layout import open_connection
from pipeline.model.library import sql
from pipeline.model.schema import TABLES

PARAMETERS = {
    "comm_groups": "group_id BIGINT, rank BIGINT",
    "run_config": "clock_error_ns BIGINT, expected_ranks BIGINT, rtt0_ns BIGINT",
}


def plain(**tables: Sequence[Mapping[str, Any]]) -> duckdb.DuckDBPyConnection:
    """A connection with every table, empty or with these rows; columns that a row lacks are NULL."""
    connection = open_connection()
    # Few rows would take another plan than many: the ASOF join proper is what runs on a cluster.
    connection.execute("SET asof_loop_join_threshold = 0")
    connection.execute(_declarations())
    tables = {"run_config": [{"clock_error_ns": 1_000_000}], **tables}
    for name, rows in tables.items():
        for columns, alike in groupby(rows, key=tuple):
            values = [list(row.values()) for row in alike]
            marks = ", ".join([f"({', '.join('?' * len(columns))})"] * len(values))
            connection.execute(
                f"INSERT INTO {name} ({', '.join(columns)}) VALUES {marks}", [v for row in values for v in row]
            )
    return connection


@cache
def _declarations() -> str:
    declared = {name: ", ".join(f"{c.name} {c.type}" for c in table.columns) for name, table in TABLES.items()}
    declared |= {name: ", ".join(" ".join(column) for column in columns_of(name)) for name in WORK_TABLES}
    return ";".join(f"CREATE TABLE {name} ({columns})" for name, columns in {**declared, **PARAMETERS}.items())


def run(connection: duckdb.DuckDBPyConnection, *names: str) -> None:
    """Run SQL files in order; what one makes replaces the table of that name."""
    for name in names:
        connection.execute(sql(name))


def ranks(nodes: Mapping[int, str]) -> dict[str, list[dict[str, Any]]]:
    """`ranks`, and a GPU operation each so that none counts as unusable."""
    return {
        "ranks": [{"rank": rank, "node": node, "pid": rank} for rank, node in nodes.items()],
        "gpu_ops": [{"rank": rank, "start_ns": 0, "end_ns": 1, "op_class": "compute", "name": "k"} for rank in nodes],
    }


def operations(*rows: tuple[int, int, str, int, int], **more: Any) -> list[dict[str, Any]]:
    """`_operations` from (rank, op_id, op, start, end)."""
    return [
        {"rank": rank, "op_id": op_id, "op": op, "kernel": f"{op}_kernel", "start_ns": start, "end_ns": end, **more}
        for rank, op_id, op, start, end in rows
    ]
