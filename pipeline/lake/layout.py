"""Where things lie in a lake, and a run's folder as tables.

LAKE/run=<id>/<table>/<name>.parquet, LAKE/run=<id>/manifest.json, LAKE/catalog.sql, LAKE/.staging/.
A run's folder is a `RunDir` both in the lake and while it is being written under .staging.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.lake.interrupt import interruptible
from pipeline.model.errors import LakeError
from pipeline.model.schema import TABLES, Table

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

PARQUET_OPTIONS = "FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3, PARQUET_VERSION v2"
MANIFEST_SCHEMA = "mfuloss.manifest/1"
UNRANKED = -1
"""In place of a rank: the rows of processes that no rule gives a rank, on every node."""
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def check_run_id(run_id: str) -> str:
    """`run_id` if it can be a folder's name, else LakeError."""
    if not _RUN_ID.fullmatch(run_id):
        raise LakeError(
            f"run id {run_id!r} can't name a folder",
            todo="use letters, digits, '.', '_' and '-', 128 at most",
        )
    return run_id


def quote(text: str) -> str:
    """`text` as an SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


@dataclass(frozen=True)
class RunDir:
    """A run's folder. Its tables are files `<table>/<name>.parquet`, each in the table's one schema."""

    path: Path

    def files(self, table: str) -> list[Path]:
        return sorted((self.path / table).glob("*.parquet"))

    def file(self, table: str, name: str) -> Path:
        folder = self.path / table
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name}.parquet"

    @property
    def manifest(self) -> dict[str, Any]:
        """manifest.json, or {} where there is none yet."""
        try:
            return dict(json.loads((self.path / "manifest.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise LakeError(f"damaged: {error}", where=self.path / "manifest.json") from None

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        # Replaced, never written in place: a staged run shares its file with the committed one by hard link.
        text = json.dumps({"schema": MANIFEST_SCHEMA, **manifest}, indent=1, sort_keys=True)
        partial = self.path / "manifest.json.partial"
        partial.write_text(text + "\n", encoding="utf-8")
        os.replace(partial, self.path / "manifest.json")  # noqa: PTH105 - replaces atomically

    def connect(
        self,
        *,
        rank: int | None = None,
        holding: Mapping[str, Sequence[Path]] | None = None,
        only: Mapping[str, str] | None = None,
        threads: int = 1,
        memory_limit: str = "1GB",
    ) -> duckdb.DuckDBPyConnection:
        """A DuckDB connection in which each event table, and each derived table that is already
        written, is a view of this run.

        With `rank`, tables that have a rank column show that rank's rows only (rows with rank NULL
        are dropped), and tables with a node column but no rank show its node's. The table
        `this_rank(rank, node, pid, nic)` then has that rank's row; with UNRANKED it is empty. holding: the files
        of a table that may hold rows of the rank (`files_holding`); without it every file is looked into. only: by
        table, a condition on its rows.
        """
        connection = open_connection(threads=threads, memory_limit=memory_limit, spill=self.path / ".spill")
        for table in TABLES.values():
            files = self.files(table.name)
            if table.derived and not files:
                continue
            if holding is not None and table.name in holding:
                files = list(holding[table.name])
            connection.execute(_view(table, of_rank(files, rank), rank, (only or {}).get(table.name)))
        if rank is not None:
            connection.execute(
                "CREATE TEMP TABLE this_rank AS SELECT rank, node, pid, nic FROM ranks WHERE rank = $1",
                [rank],
            )
        return connection

    def write(
        self,
        table: str,
        name: str,
        connection: duckdb.DuckDBPyConnection,
        query: str,
        *,
        ordered: bool = False,
    ) -> int:
        """Write `query` (columns by name; absent ones are NULL) as a file of `table`, sorted; rows written.

        ordered: its rows come in the table's order already. A query without rows writes no file.
        """
        schema = TABLES[table]
        have = {row[0]: str(row[1]) for row in connection.execute(f"DESCRIBE {query}").fetchall()}
        unknown = have.keys() - set(schema.column_names)
        if unknown:
            raise ValueError(f"{table} has no column {sorted(unknown)}")
        columns = ", ".join(
            # Enumerations are stored as text anyway, and are written faster as what they are.
            c.name
            if c.type == "VARCHAR" and have.get(c.name, "").startswith("ENUM")
            else f"CAST({c.name if c.name in have else 'NULL'} AS {c.type}) AS {c.name}"
            for c in schema.columns
        )
        order = "" if ordered else "ORDER BY " + ", ".join(f"{name} NULLS FIRST" for name in schema.sort)
        target = self.file(table, name)
        partial = target.with_suffix(".partial")
        copied = connection.execute(
            f"COPY (SELECT {columns} FROM ({query}) {order}) TO {quote(str(partial))} ({PARQUET_OPTIONS})"
        ).fetchone()
        rows = int(copied[0]) if copied else 0
        if rows:
            os.replace(partial, target)  # noqa: PTH105 - replaces atomically
        else:
            partial.unlink(missing_ok=True)
            target.unlink(missing_ok=True)
        return rows

    def write_batches(self, table: str, name: str, batches: Iterable[pa.RecordBatch]) -> int:
        """Write Arrow batches that are in the table's schema and order already; rows written."""
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(TABLES[table].arrow_schema(), batches)
        connection = open_connection()
        connection.register("batches", reader)
        try:
            return self.write(table, name, connection, "SELECT * FROM batches")
        finally:
            connection.close()

    def remove(self, table: str, name: str | None = None) -> None:
        """Remove one file of a table, or all of them."""
        for file in self.files(table) if name is None else [self.file(table, name)]:
            file.unlink(missing_ok=True)


def open_connection(
    *, threads: int = 1, memory_limit: str = "1GB", spill: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB with UTC, bounded memory, and nothing fetched from anywhere."""
    import duckdb

    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": threads,
        "memory_limit": memory_limit,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "allow_community_extensions": False,
        "preserve_insertion_order": True,
    }
    if spill is not None:
        config["temp_directory"] = str(spill)
    connection = interruptible(duckdb.connect(":memory:", config=config))
    connection.execute("SET enable_progress_bar = false")  # DuckDB's own would go to stdout, among the results
    return connection


def rank_file(rank: int, part: int | None = None) -> str:
    """Name of the file that holds one rank's rows (or a part of them) of a table that is made rank by rank."""
    name = "unranked" if rank == UNRANKED else f"rank-{rank:05d}"
    return name if part is None else f"{name}.{part:05d}"


def of_rank(files: list[Path], rank: int | None) -> list[Path]:
    """Without the files that are another rank's alone: each file costs a look at its footer in every query."""
    if rank is None:
        return files
    own = rank_file(rank)
    return [file for file in files if not file.stem.startswith("rank-") or file.stem.partition(".")[0] == own]


def files_holding(run_dir: RunDir, nodes: Mapping[int, str | None]) -> dict[int, dict[str, list[Path]]]:
    """For each rank (with its node) the files of each event table that may hold its rows, by the files' statistics."""
    found: dict[int, dict[str, list[Path]]] = {rank: {} for rank in nodes}
    connection = open_connection()
    try:
        for table in TABLES.values():
            files = run_dir.files(table.name)
            names = table.column_names
            # A node's losses concern all its ranks, and ranks are looked up by node.
            key = "rank" if "rank" in names and table.name not in ("losses", "ranks", "log_events") else None
            key = key or ("node" if "node" in names and "rank" not in names else None)
            if table.derived or key is None or len(files) < 2:
                continue
            listed = ", ".join(quote(str(file)) for file in files)
            spans = connection.execute(
                f"""SELECT file_name, min(stats_min_value), max(stats_max_value), bool_or(stats_min_value IS NULL)
                    FROM parquet_metadata([{listed}]) WHERE path_in_schema = '{key}' GROUP BY file_name"""
            ).fetchall()
            for file_name, low, high, unknown in sorted(spans):
                for rank, node in nodes.items():
                    held = low is not None and (
                        int(low) <= rank <= int(high) if key == "rank" else low <= (node or "") <= high
                    )
                    if unknown or held:
                        found[rank].setdefault(table.name, []).append(Path(file_name))
            for rank in nodes:
                found[rank].setdefault(table.name, [])
    finally:
        connection.close()
    return found


def _view(table: Table, files: list[Path], rank: int | None, only: str | None = None) -> str:
    kind = "TEMP VIEW"
    if not files:
        columns = ", ".join(f"CAST(NULL AS {c.type}) AS {c.name}" for c in table.columns)
        return f"CREATE {kind} {table.name} AS SELECT {columns} WHERE false"
    listed = ", ".join(quote(str(file)) for file in files)
    columns = ", ".join(table.column_names)
    where = ""
    if rank == UNRANKED:
        where = " WHERE rank IS NULL" if "rank" in table.column_names else ""
    elif rank is not None and table.name != "ranks":
        names = table.column_names
        if table.name == "losses":
            # A collector that watches a whole node loses events of all its ranks.
            where = (
                f" WHERE rank = {rank:d} OR (rank IS NULL AND node = (SELECT node FROM ranks WHERE rank = {rank:d}))"
            )
        elif "rank" in names:
            where = f" WHERE rank = {rank:d}"
        elif "node" in names:
            where = f" WHERE node = (SELECT node FROM ranks WHERE rank = {rank:d})"
    if only is not None:
        where += f"{' AND' if where else ' WHERE'} ({only})"
    return (
        f"CREATE {kind} {table.name} AS SELECT {columns} "
        f"FROM read_parquet([{listed}], hive_partitioning = false){where}"
    )


def run_of(path: Path) -> str:
    """The id of the run whose folder this is."""
    return path.name.removeprefix("run=")


def runs_of(lake: Path) -> Iterator[Path]:
    """Folders of the committed runs, by name."""
    yield from sorted(path for path in lake.glob("run=*") if (path / "manifest.json").is_file())
