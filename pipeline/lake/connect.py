"""The lake for readers: DuckDB with every view and macro, read-only; and polars scans of its tables."""

from __future__ import annotations

import glob
import re
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pipeline.lake.catalog import find_lake, find_run, load_library, table_views
from pipeline.lake.layout import open_connection, quote, run_of, runs_of
from pipeline.model.errors import UsageError
from pipeline.model.schema import TABLES

if TYPE_CHECKING:
    import duckdb
    import polars as pl

_ALLOWED_STATEMENTS = frozenset({"SELECT", "EXPLAIN", "MULTI", "RELATION", "DROP"})
_FORBIDDEN_WORDS = frozenset({"copy", "export", "attach", "install", "import", "secret", "checkpoint"})
_START = r"(?is)\A(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_ALLOWED_FORMS = {
    "CREATE": re.compile(
        _START + r"create\s+(?:or\s+replace\s+)?(?:temp(?:orary)?\s+)?(?:view|macro|function|table|type)\b"
    ),
    "SET": re.compile(_START + r"set\s+variable\b"),
}
"""Kinds of statements of which only these forms are allowed: they change this connection's memory alone."""


def connect(lake: str | Path, run: str | None = None) -> LakeConnection:
    """The lake's views and macros in DuckDB: reads nothing beside the lake, writes nothing anywhere.

    run: show that run alone. Raises LakeError, NoSuchRun.
    """
    path = find_lake(lake)
    if run is not None:
        find_run(path, run)
    connection = open_connection(threads=_threads(), memory_limit="4GB")
    try:
        for _, statement in table_views(path, run):
            connection.execute(statement)
        load_library(connection)
        _lock(connection, path)
    except BaseException:
        connection.close()
        raise
    return LakeConnection(connection)


def _threads() -> int:
    from pipeline.executor import default_jobs

    return default_jobs()


def _lock(connection: duckdb.DuckDBPyConnection, lake: Path) -> None:
    # The escaped form too: DuckDB checks a glob as it is written.
    folders = ", ".join(quote(f"{form}/") for form in dict.fromkeys((str(lake), glob.escape(str(lake)))))
    connection.execute(f"SET allowed_directories = [{folders}]")
    for setting in (
        "python_enable_replacements = false",
        "allow_persistent_secrets = false",
        "temp_directory = ''",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        connection.execute(f"SET {setting}")


def check_query(query: str) -> None:
    """Raise UsageError for SQL that could write, or reach for another database.

    enable_external_access keeps a query inside the lake's folder, yet DuckDB lets COPY and ATTACH
    write there, in a CTE and under EXPLAIN ANALYZE too. So statements are allowed by kind, and those
    words are not allowed as bare words anywhere (as "copy" they are a name).
    """
    import duckdb

    try:
        statements = duckdb.extract_statements(query)
    except duckdb.Error as error:
        raise UsageError(_first_line(error), todo="check the SQL") from None
    for statement in statements:
        kind = statement.type.name
        form = _ALLOWED_FORMS.get(kind)
        if kind not in _ALLOWED_STATEMENTS and not (form and form.match(statement.query)):
            raise UsageError(f"{kind} is not allowed here: the lake is read-only")
    for word in _bare_words(query):
        if word in _FORBIDDEN_WORDS:
            raise UsageError(
                f"{word.upper()} is not allowed here: the lake is read-only",
                todo=f'write "{word}" in double quotes if it is a name',
            )


def _bare_words(query: str) -> set[str]:
    import duckdb

    words = set()
    for offset, kind in duckdb.tokenize(query):
        if kind.name in ("keyword", "identifier"):
            match = re.match(r"\w+", query.encode()[offset:].decode(errors="replace"))
            if match:
                words.add(match.group().lower())
    return words


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n\nLINE")[0].split("\n")[0]


class LakeConnection:
    """A DuckDB connection that runs queries only. Other methods are those of DuckDBPyConnection."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def execute(self, query: str, parameters: Any = None) -> LakeConnection:
        """Run SQL; fetch from the returned connection. Raises UsageError for what is no query."""
        check_query(query)
        if parameters is None:
            self._connection.execute(query)
        else:
            self._connection.execute(query, parameters)
        return self

    def sql(self, query: str, **options: Any) -> duckdb.DuckDBPyRelation | None:
        """A relation of the query; None for a statement without result. Raises UsageError for what is no query."""
        check_query(query)
        return self._connection.sql(query, **options)

    query = sql

    def cursor(self) -> LakeConnection:
        """A second connection to the same views."""
        return LakeConnection(self._connection.cursor())

    def __getattr__(self, name: str) -> Any:
        if name in ("executemany", "from_substrait", "install_extension", "load_extension", "from_query"):
            raise AttributeError(f"{name} is not offered: the lake is read-only")
        return getattr(self._connection, name)

    def __enter__(self) -> LakeConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()


@dataclass(frozen=True)
class Lake:
    """A lake on disk.

    >>> lake = Lake(Path("lake"))
    >>> lake.scan("breakdown").filter(pl.col("rank") == 0).collect()
    """

    path: str | Path

    def runs(self) -> list[str]:
        """Ids of the committed runs, by name."""
        return [run_of(each) for each in runs_of(find_lake(self.path))]

    def tables(self) -> list[str]:
        """Names of all tables of the schema; a table may be empty."""
        return list(TABLES)

    def manifest(self, run: str | None = None) -> dict[str, Any]:
        """manifest.json of a run, by default the newest."""
        return find_run(self.path, run).manifest

    def connect(self, run: str | None = None) -> LakeConnection:
        """As `connect(lake, run)`."""
        return connect(self.path, run)

    def scan(self, table: str, run: str | None = None) -> pl.LazyFrame:
        """A polars LazyFrame of a table, with the column `run` first. Raises UsageError for an unknown table."""
        import polars as pl

        if table not in TABLES:
            raise UsageError(f"no table {table!r}", todo=f"tables: {', '.join(TABLES)}")
        path = find_lake(self.path)
        runs = [find_run(path, run).path] if run is not None else list(runs_of(path))
        schema = TABLES[table].arrow_schema()
        empty = pl.from_arrow(schema.empty_table())
        if not isinstance(empty, pl.DataFrame):
            raise TypeError("an Arrow table gives a DataFrame")
        frames = [
            pl.scan_parquet(files, glob=False, hive_partitioning=False).select(
                pl.lit(run_of(each)).alias("run"), *schema.names
            )
            for each in runs
            if (files := sorted((each / table).glob("*.parquet")))
        ]
        if not frames:
            return empty.lazy().select(pl.lit("").alias("run"), *schema.names)
        return pl.concat(frames, how="vertical")
