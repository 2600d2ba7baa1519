"""LAKE/catalog.sql: every table as a view over all runs, and the query library, for a plain DuckDB shell."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.lake.layout import RunDir, open_connection, quote, run_of, runs_of
from pipeline.model import library
from pipeline.model.errors import LakeError, NoSuchRun
from pipeline.model.schema import TABLES, Table

if TYPE_CHECKING:
    import duckdb

CATALOG = "catalog.sql"
PRIVATE_SUBJECTS = ("attribution", "report", "sources")
"""Folders of queries/ that make things on the way to a run, and that no reader of a lake needs."""


_TEMPORARY = re.compile(r"(?im)^create\s+(?:or\s+replace\s+)?temp(?:orary)?\b")


def find_lake(lake: str | Path) -> Path:
    """The lake's absolute path. Raises LakeError where there is none."""
    path = Path(os.path.abspath(lake))  # noqa: PTH100 - keeps symbolic links: the path stays the user's
    if not path.is_dir():
        raise LakeError("no such lake", where=lake, todo="make one with: mfuloss ingest INPUT... --lake DIR")
    return path


def find_run(lake: str | Path, run: str | None = None) -> RunDir:
    """A run of the lake, by default the newest commit. Raises NoSuchRun, LakeError."""
    path = find_lake(lake)
    runs = list(runs_of(path))
    if run is not None:
        if path / f"run={run}" in runs:
            return RunDir(path / f"run={run}")
        known = ", ".join(run_of(each) for each in runs[-5:]) or "none"
        raise NoSuchRun(f"no run {run!r} in the lake", where=lake, todo=f"runs there: {known}")
    if not runs:
        raise NoSuchRun("the lake has no run", where=lake, todo="make one with: mfuloss ingest INPUT... --lake DIR")
    return RunDir(max(runs, key=lambda each: ((each / "manifest.json").stat().st_mtime_ns, each.name)))


def table_views(lake: Path, run: str | None = None) -> list[tuple[str, str]]:
    """(table, CREATE VIEW statement) for every table, empty ones included; over one run or all."""
    return [(table.name, _view(lake, table, run)) for table in TABLES.values()]


def _view(lake: Path, table: Table, run: str | None) -> str:
    folder = "run=*" if run is None else f"run={run}"
    if not any(lake.glob(f"{folder}/{table.name}/*.parquet")):
        columns = ", ".join(f"CAST(NULL AS {column.type}) AS {column.name}" for column in table.columns)
        return f"CREATE OR REPLACE VIEW {table.name} AS SELECT CAST(NULL AS VARCHAR) AS run, {columns} WHERE false;"
    pattern = f"{glob.escape(str(lake))}/{folder}/{table.name}/*.parquet"
    columns = ", ".join(("run", *table.column_names))
    return (
        f"CREATE OR REPLACE VIEW {table.name} AS SELECT {columns} FROM read_parquet({quote(pattern)}, "
        "hive_partitioning = true, hive_types = {'run': VARCHAR});"
    )


def library_files() -> list[Path]:
    """The SQL files that a reader of a lake gets: macros and views by path, then questions; no temporary tables."""
    top = library.queries_dir()
    return [
        path
        for path in sorted(top.rglob("*.sql"), key=lambda path: (path.parent.name == "questions", path))
        if path.relative_to(top).parts[0] not in PRIVATE_SUBJECTS and not _TEMPORARY.search(path.read_text("utf-8"))
    ]


def load_library(connection: duckdb.DuckDBPyConnection) -> list[Path]:
    """Run the library's files on a connection that has the tables' views; the order in which they load.

    A file may use what another file defines, in any order of names: what fails is tried again after
    the others. Raises RuntimeError with the first error where some can't load at all.
    """
    import duckdb

    waiting = library_files()
    loaded: list[Path] = []
    while waiting:
        failed: list[tuple[Path, Exception]] = []
        for path in waiting:
            try:
                connection.execute(path.read_text(encoding="utf-8"))
                loaded.append(path)
            except duckdb.Error as error:
                failed.append((path, error))
        if len(failed) == len(waiting):
            path, first = failed[0]
            raise RuntimeError(f"{path}: {first}") from first
        waiting = [path for path, _ in failed]
    return loaded


def catalog_text(lake: Path) -> str:
    """The text of catalog.sql for the lake at its present place."""
    views = table_views(lake)
    connection = open_connection()
    try:
        for _, statement in views:
            connection.execute(statement)
        files = load_library(connection)
    finally:
        connection.close()
    top = library.queries_dir()
    parts = [
        "-- Views and macros of this lake. Use: duckdb -init catalog.sql\n",
        "-- Made by mfuloss at each commit; after the lake moved: mfuloss lake refresh --lake DIR\n",
    ]
    parts += [f"{statement}\n" for _, statement in views]
    for path in files:
        text = path.read_text(encoding="utf-8").strip()
        end = "" if text.endswith(";") else ";"
        parts.append(f"\n-- queries/{path.relative_to(top).as_posix()}\n{text}{end}\n")
    return "".join(parts)


def refresh(lake: str | Path) -> Path:
    """Write catalog.sql anew, in one step; its path. Raises LakeError where it can't be written."""
    path = find_lake(lake)
    target = path / CATALOG
    partial = path / f".{CATALOG}.{os.getpid()}"
    try:
        partial.write_text(catalog_text(path), encoding="utf-8")
        os.replace(partial, target)  # noqa: PTH105 - replaces atomically
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise LakeError(f"can't write it: {error.strerror}", where=target) from None
    return target
