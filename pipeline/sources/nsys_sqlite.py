"""SQLite exports of Nsight Systems (`nsys export --type=sqlite`), every schema from 2021 on.

Read through ADBC in bounded memory. Its SQLite driver takes a column's type from the first batch, so each query
begins with a typed sentinel row. Values that don't fit their column (SQLite lets any value into any column) are
rare: a query runs without checks at first, and where the driver stops at such a value, goes on from that batch
with a check on each value.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.model.capture import Account, Capture
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources import nsys_capture
from pipeline.sources.nsys_tables import Physical, Problems, Raw
from pipeline.sources.nsys_text import clean_array, is_environment_block

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "nsys_sqlite"
CONTIGUOUS = True

_SUFFIXES = (".sqlite", ".sqlite3", ".db")
_MAGIC = b"SQLite format 3\0"
_BATCH_ROWS = 32_768
_SAMPLE_ALL = 100_000
_SAMPLE_ROWS = 4_000


def claims(path: Path) -> bool:
    """A file that is SQLite by its first bytes, or says so by its name."""
    if not path.is_file():
        return False
    if path.suffix.lower() in _SUFFIXES:
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def inspect(path: Path, config: RunConfig) -> Capture:
    """What the export holds. Raises UnusableInput where it is no SQLite file, cut short, or not from nsys."""
    export = SqliteExport(path)
    try:
        return nsys_capture.inspect(export, KIND)
    finally:
        export.close()


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """See `pipeline.model.capture.Source.read`; all batches of a table come one after another."""
    export = SqliteExport(capture.path)
    try:
        yield from nsys_capture.read(export, capture, ranks, node, config, account)
    finally:
        export.close()


class SqliteExport:
    """An opened SQLite export (`nsys_tables.Export`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = _check_file(path)
        self.problems = Problems()
        self._uri = f"{path.resolve().as_uri()}?mode=ro"
        self._tables: dict[str, Physical] | None = None
        try:
            self._catalogue = sqlite3.connect(self._uri, uri=True, check_same_thread=False)
            self._catalogue.text_factory = bytes
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def close(self) -> None:
        self._catalogue.close()

    def tables(self) -> Mapping[str, Physical]:
        if self._tables is None:
            names = [
                row[0].decode("utf-8", "replace")
                for row in self._query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            ]
            self._tables = {name: self._physical(name) for name in names if not name.startswith("sqlite_")}
        return self._tables

    def batches(self, raw: Raw, physical: Physical) -> Iterator[pa.RecordBatch]:
        done = 0
        try:
            for batch in self._batches(raw, physical, checked=False, offset=0):
                yield batch
                done += batch.num_rows
        except _Mistyped:
            self._count_mistyped(raw, physical)
            yield from self._batches(raw, physical, checked=True, offset=done)

    def sample(self, physical: Physical, columns: Sequence[str]) -> set[tuple[int | None, ...]]:
        wanted = ", ".join(_name(c) if c in physical.columns else "NULL" for c in columns)
        where = ""
        if physical.rows > _SAMPLE_ALL:
            step = physical.rows // _SAMPLE_ROWS
            rows = ", ".join(str(row) for row in range(1, physical.rows + 1, step))
            where = f" WHERE rowid IN ({rows}, {physical.rows})"
        found = self._query(f"SELECT DISTINCT {wanted} FROM {_name(physical.name)}{where}")
        return {tuple(v if isinstance(v, int) else None for v in row) for row in found}

    def environment_blocks(self, physical: Physical) -> list[bytes]:
        found = self._query(
            f"SELECT CAST(value AS BLOB) FROM {_name(physical.name)} WHERE instr(CAST(value AS BLOB), x'00')"
        )
        return [row[0] for row in found if row[0] is not None and is_environment_block(row[0])]

    def _physical(self, name: str) -> Physical:
        columns = frozenset(
            row[1].decode("utf-8", "replace") for row in self._query(f"PRAGMA table_info({_name(name)})")
        )
        try:
            rows = self._catalogue.execute(f"SELECT max(rowid) FROM {_name(name)}").fetchone()[0] or 0
        except sqlite3.Error as error:
            if "no such column: rowid" not in str(error):  # a table WITHOUT ROWID
                raise self._unusable(error) from None
            rows = self._query(f"SELECT count(*) FROM {_name(name)}")[0][0]
        return Physical(name, columns, rows if isinstance(rows, int) and rows > 0 else 0)

    def _batches(self, raw: Raw, physical: Physical, *, checked: bool, offset: int) -> Iterator[pa.RecordBatch]:
        import adbc_driver_sqlite.dbapi as driver
        import pyarrow as pa

        schema = raw.schema()
        connection = cursor = None
        try:
            connection = driver.connect(self._uri)
            cursor = connection.cursor()
            cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(_BATCH_ROWS)})
            cursor.execute(_select(raw, physical, checked=checked, offset=offset))
            reader = cursor.fetch_record_batch()
            # The sentinel fixes each column's type unless the first batch holds something wider.
            wanted = [pa.int64()] * len(raw.ints) + [pa.binary()] * (len(raw.texts) + len(raw.blobs))
            if reader.schema.types != wanted:
                raise _Mistyped
            first = True
            for batch in reader:
                rows = batch.slice(1) if first else batch
                first = False
                if rows.num_rows:
                    yield _typed(rows, raw, schema)
        except OSError as error:
            if not checked and "Type mismatch" in str(error):
                raise _Mistyped from None
            raise self._unusable(error) from None
        except driver.Error as error:
            raise self._unusable(error) from None
        finally:
            # The driver needs cursors closed before their connection.
            if cursor is not None:
                cursor.close()
            if connection is not None:
                connection.close()

    def _count_mistyped(self, raw: Raw, physical: Physical) -> None:
        for column in raw.ints:
            if column in physical.columns:
                name = _name(column)
                (count,) = self._query(
                    f"SELECT count(*) FROM {_name(physical.name)} WHERE typeof({name}) NOT IN ('integer', 'null')"
                )[0]
                if count:
                    self.problems.mistyped[f"{physical.name}.{column}"] = count

    def _query(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            return self._catalogue.execute(sql).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from None

    def _unusable(self, error: Exception) -> UnusableInput:
        return UnusableInput(
            f"not a readable SQLite file: {str(error).splitlines()[0]}",
            where=self.path,
            todo="export it again from the .nsys-rep",
        )


class _Mistyped(Exception):
    """A value does not fit its column's type."""


def _select(raw: Raw, physical: Physical, *, checked: bool, offset: int) -> str:
    def integer(column: str) -> str:
        name = _name(column)
        if column not in physical.columns:
            return f"NULL AS {name}"
        return f"CASE typeof({name}) WHEN 'integer' THEN {name} END AS {name}" if checked else name

    def blob(column: str) -> str:
        return (
            f"CAST({_name(column)} AS BLOB) AS {_name(column)}"
            if column in physical.columns
            else f"NULL AS {_name(column)}"
        )

    sentinel = ", ".join([f"0 AS {_name(c)}" for c in raw.ints] + [f"x'' AS {_name(c)}" for c in raw.texts + raw.blobs])
    columns = ", ".join([integer(c) for c in raw.ints] + [blob(c) for c in raw.texts + raw.blobs])
    rows = f"SELECT {columns} FROM {_name(physical.name)}"
    if offset:
        rows = f"SELECT * FROM ({rows} LIMIT -1 OFFSET {offset:d})"
    return f"SELECT {sentinel} UNION ALL {rows}"


def _typed(batch: pa.RecordBatch, raw: Raw, schema: pa.Schema) -> pa.RecordBatch:
    if not raw.texts:
        return batch
    import pyarrow as pa

    arrays = [batch.column(i) for i in range(batch.num_columns)]
    for i in range(len(raw.ints), len(raw.ints) + len(raw.texts)):
        arrays[i] = clean_array(arrays[i])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _check_file(path: Path) -> int:
    """Size of a file that can be SQLite. Raises UnusableInput that says what it is instead."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(100)
    except OSError as error:
        raise UnusableInput(f"can't read it: {error.strerror}", where=path) from None
    if not size:
        raise UnusableInput("an empty file", where=path, todo="export it again")
    if head.startswith(b"version https://git-lfs"):
        raise UnusableInput("a Git LFS pointer, not the file itself", where=path, todo="fetch it with `git lfs pull`")
    if not head.startswith(_MAGIC):
        raise UnusableInput("not an SQLite file", where=path, todo="export it with `nsys export --type=sqlite`")
    page = int.from_bytes(head[16:18], "big")
    page = 65_536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    # The page count of the header holds only if the last writer kept it (file format, section 1.3.7).
    if len(head) < 100 or (head[24:28] == head[92:96] and size < page * pages):
        raise UnusableInput(f"cut short: {size} of {page * pages} bytes", where=path, todo="copy or export it again")
    return size
