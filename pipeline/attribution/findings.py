"""Runs the detectors of queries/attribution/findings/: each file `find_<code>.sql` is one, nothing else to register."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.model import environment, library, thresholds

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

HELPERS = (
    "threshold",
    "step_word",
    "_sampled_steps",
    "_typical_time",
    "_rank_shares",
    "_counter_growth",
    "_flights",
    "_receiver_excess",
    "_port_bytes",
    "_idle_gaps",
    "_environment",
)
"""What detectors share, in order of need."""


def detectors() -> list[str]:
    """Codes of the detectors that the library has, sorted."""
    return sorted(name.removeprefix("find_") for name in library.paths() if name.startswith("find_"))


def make_findings(connection: duckdb.DuckDBPyConnection, codes: Sequence[str] | None = None) -> None:
    """Make the table `findings` of a connection that has every table of the run and `_counted_steps`.

    With `codes` these detectors alone.
    """
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE thresholds (detector VARCHAR, name VARCHAR, value DOUBLE, unit VARCHAR, why VARCHAR)"
    )
    connection.executemany("INSERT INTO thresholds VALUES ($1, $2, $3, $4, $5)", [list(r) for r in thresholds.rows()])
    _known_variables(connection)
    for name in HELPERS:
        _run(connection, name)
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE findings (code VARCHAR, severity VARCHAR, rank BIGINT, node VARCHAR, nic VARCHAR,
            step BIGINT, place BIGINT, measure VARCHAR, value DOUBLE, threshold DOUBLE, evidence VARCHAR, text VARCHAR,
            confounders VARCHAR, next VARCHAR)"""
    )
    for code in detectors() if codes is None else codes:
        _run(connection, f"find_{code}")
        connection.execute(
            f"INSERT INTO findings BY NAME SELECT $1 AS code, $2 AS place, * FROM find_{code}",
            [code, thresholds.place(code)],
        )


def _known_variables(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE known_variables (library VARCHAR, name VARCHAR, lacking_before BIGINT, lacking_after BIGINT);
        CREATE OR REPLACE TEMP TABLE known_families (prefix VARCHAR);
        CREATE OR REPLACE TEMP TABLE known_libraries (library VARCHAR, newest BIGINT)"""
    )
    # One statement each: the names are some hundreds.
    for table, rows in (
        ("known_variables", environment.rows()),
        ("known_families", [(prefix,) for prefix in environment.PREFIXES]),
        ("known_libraries", list(environment.NEWEST.items())),
    ):
        marks = ", ".join(f"({', '.join('?' * len(row))})" for row in rows)
        connection.execute(f"INSERT INTO {table} VALUES {marks}", [value for row in rows for value in row])


def _run(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    try:
        connection.execute(library.sql(name))
    except Exception as error:
        error.add_note(f"in {name}.sql")
        raise
