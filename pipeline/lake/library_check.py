"""Checks the SQL library: `python -m pipeline.lake.library_check` fails with all violations at once.

Units: a number's name ends in its unit (_ns, _bytes, _bytes_per_s, _percent, _ppb), is a count (n_ or the plural of
what is counted), or one of the names that are no quantity (a rank, a step, a ratio).
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from pipeline.lake.catalog import load_library
from pipeline.lake.headers import PUBLIC_SUBJECTS, Header, public, read
from pipeline.model import library
from pipeline.model.schema import TABLES

if TYPE_CHECKING:
    import duckdb

_NUMBERS = re.compile(r"(HUGE|BIG|SMALL|TINY|U|UBIG)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*")
_UNITS = re.compile(r"(^|_)(ns|bytes|bytes_per_s|percent|ppb|value)$")
_COUNTS = re.compile(r"^n_\w+$|(^|_)(captures|kernels|messages|nics|ranks|steps|victims|waits)(_late)?$|^doubtful$")
_NO_QUANTITY = frozenset(
    [
        "rank",
        "step",
        "device",
        "stream",
        "tid",
        "pid",
        "cpu",
        "qp",
        "port",
        "op_id",
        "status",
        "place",
        "first_cause",
        "distance",
        "share",
        "ratio",
        "imbalance",
        "persistence",
        "robust_z",
        "slow_share",
        "percentile",
        "outstanding_at_post",
    ]
) | {"worst_step"}
_IDENTITIES = re.compile(r"(_rank|_qp|_tid|_step|_index|_id)$")


def violations() -> list[str]:
    """Every violation: file, object, what is wrong, what to do; empty where the library is sound."""
    top = library.queries_dir()
    found: list[str] = []

    def say(header: Header, what: str, todo: str) -> None:
        found.append(f"queries/{header.path.relative_to(top).as_posix()}: {what}; {todo}")

    for path in sorted(top.rglob("*.sql")):
        header = read(path)
        if not header.title or header.name != path.stem:
            say(header, f"the first line does not name {path.stem}", f"write: -- {path.stem}: what it answers.")
        if header.defines and header.defines.lower() != path.stem.lower():
            say(header, f"it defines {header.defines}", f"name it {path.stem}, or the file {header.defines}.sql")
        if path.relative_to(top).parts[0] in PUBLIC_SUBJECTS and not header.defines:
            say(header, "it defines nothing", f"write: CREATE OR REPLACE VIEW {path.stem} AS, or a macro")
    connection = _empty()
    try:
        for header in public():
            for what, todo in _of(header, connection):
                say(header, what, todo)
    finally:
        connection.close()
    return found


def _of(header: Header, connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if not header.example:
        found.append((f"{header.name} has no example", "add: -- Example: SELECT ...;"))
    for each in (*header.arguments, *header.columns):
        if not each.text:
            found.append((f"{header.name}.{each.name} has no description", "say what it means, with its unit"))
    for column in header.columns:
        if _NUMBERS.fullmatch(column.type) and not _has_unit(column.name):
            found.append(
                (
                    f"{header.name}.{column.name} is a number without a unit",
                    "end it in _ns, _bytes, _bytes_per_s or _percent, or begin a count with n_",
                )
            )
    if header.kind in ("macro", "question"):
        row = connection.execute(
            "SELECT any_value(parameters) FROM duckdb_functions() WHERE function_name = $1", [header.defines]
        ).fetchone()
        actual = list(row[0]) if row and row[0] else []
        said = [each.name for each in header.arguments]
        if said != actual:
            found.append((f"{header.name} takes {actual}, its header says {said}", "make the header's Arguments agree"))
    if header.kind in ("view", "question"):
        call = header.defines
        if header.kind == "question":
            nulls = ", ".join(f"{each.name} := NULL::{each.type}" for each in header.arguments)
            call = f"{header.defines}({nulls.replace(header.arguments[0].name + ' := ', '', 1) if _positional(header) else ''})"
        rows = connection.execute(f"DESCRIBE FROM {call}").fetchall()
        actual_columns = [(str(row[0]), str(row[1])) for row in rows]
        said_columns = [(each.name, each.type) for each in header.columns]
        for missing in [each for each in actual_columns if each not in said_columns]:
            found.append((f"{header.name} returns {' '.join(missing)}, its header does not say so", "add it to Output"))
        for extra in [each for each in said_columns if each not in actual_columns]:
            found.append((f"{header.name} does not return {' '.join(extra)}", "take it from Output, or return it"))
        if sorted(actual_columns) == sorted(said_columns) and actual_columns != said_columns:
            found.append((f"{header.name} returns its columns in another order", "order Output as the result is"))
    elif header.kind == "macro" and not header.result:
        found.append((f"{header.name} does not say what it returns", "add: -- Output: TYPE: meaning, with its unit"))
    return found


def _positional(header: Header) -> bool:
    """Whether a table macro has arguments without a default (those of macros/ have none, questions' all have)."""
    return header.path.parent.name == "macros"


def _has_unit(name: str) -> bool:
    return bool(name in _NO_QUANTITY or _UNITS.search(name) or _COUNTS.search(name) or _IDENTITIES.search(name))


def _empty() -> duckdb.DuckDBPyConnection:
    """A connection with the library over empty tables."""
    from pipeline.lake.layout import open_connection

    connection = open_connection()
    for table in TABLES.values():
        columns = ", ".join(f"{column.name} {column.type}" for column in table.columns)
        connection.execute(f"CREATE TABLE {table.name} (run VARCHAR, {columns})")
    load_library(connection)
    return connection


def main() -> int:
    """Print what is wrong; 1 where anything is."""
    found = violations()
    for line in found:
        print(line)  # noqa: T201
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
