"""Rows of one capture, as they come from a source, into sorted files of a run: bounded memory, any size.

Batches are spooled by table to Arrow files. A table whose batches came in order already is copied
through; the others are sorted by DuckDB, which spills to disk beyond its memory limit.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.lake.layout import RunDir, open_connection
from pipeline.model.schema import TABLES, Table

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


@dataclass
class _Spool:
    path: Path
    writer: Any
    sink: Any
    rows: int = 0
    ordered: bool = True
    last: tuple[Any, ...] | None = None

    def close(self) -> None:
        if not self.sink.closed:
            self.writer.close()
            self.sink.close()


class CaptureWriter:
    """Context manager: `add` batches in any order of tables, then `finish`.

    select: by table, an SQL select list over the spooled rows (`SELECT <list> FROM spool`); it must
    keep the order of rows. macros: SQL texts that the lists use.
    """

    def __init__(self, run_dir: RunDir, name: str, *, threads: int = 1, memory_limit: str = "700MB") -> None:
        self.run_dir = run_dir
        self.name = name
        self.threads = threads
        self.memory_limit = memory_limit
        self._folder = run_dir.path / "_work" / f"spool.{name}"
        self._spools: dict[str, _Spool] = {}

    def __enter__(self) -> CaptureWriter:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for spool in self._spools.values():
            spool.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        if kind is not None:
            for table in self._spools:
                self.run_dir.remove(table, self.name)

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Take a batch in `table`'s schema. Raises ValueError where it is not."""
        import pyarrow as pa

        if not batch.num_rows:
            return
        schema = TABLES[table].arrow_schema()
        if batch.schema != schema:
            if batch.schema.names != schema.names:
                raise ValueError(f"{table}: columns {batch.schema.names}, expected {schema.names}")
            batch = batch.cast(schema)
        spool = self._spools.get(table)
        if spool is None:
            path = self._folder / f"{table}.arrow"
            sink = pa.OSFile(str(path), "wb")
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            spool = self._spools[table] = _Spool(path, pa.ipc.new_file(sink, schema, options=options), sink)
        spool.writer.write_batch(batch)
        spool.rows += batch.num_rows
        if spool.ordered:
            spool.ordered = _follows(TABLES[table], spool, batch)

    def finish(self, select: Mapping[str, str] | None = None, macros: tuple[str, ...] = ()) -> dict[str, int]:
        """Write every table's file; rows by table."""
        rows: dict[str, int] = {}
        for table in list(self._spools):
            spool = self._spools[table]
            spool.close()
            connection = open_connection(
                threads=self.threads, memory_limit=self.memory_limit, spill=self._folder / "spill"
            )
            try:
                for macro in macros:
                    connection.execute(macro)
                rows[table] = self._write(table, spool, connection, (select or {}).get(table, "*"))
            finally:
                connection.close()
            spool.path.unlink()
        return rows

    def _write(self, table: str, spool: _Spool, connection: duckdb.DuckDBPyConnection, columns: str) -> int:
        import pyarrow as pa

        with pa.memory_map(str(spool.path)) as source:
            file = pa.ipc.open_file(source)
            batches = (file.get_batch(index) for index in range(file.num_record_batches))
            connection.register("spool", pa.RecordBatchReader.from_batches(file.schema, batches))
            return self.run_dir.write(
                table, self.name, connection, f"SELECT {columns} FROM spool", ordered=spool.ordered
            )


def _follows(table: Table, spool: _Spool, batch: pa.RecordBatch) -> bool:
    """Whether the batch goes on in the table's order: the leading keys do not change, the last one never falls."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    *leading, final = table.sort
    column = batch.column(final)
    if column.null_count or not pa.types.is_integer(column.type):
        return False
    fixed: list[Any] = []
    for name in leading:
        key = batch.column(name)
        if key.null_count == len(key):
            fixed.append(None)
            continue
        ends = pc.min_max(key).as_py()
        if key.null_count or ends["min"] != ends["max"]:
            return False
        fixed.append(ends["min"])
    values = np.asarray(column)
    state = (*fixed, int(values[0]))
    if spool.last is not None and (spool.last[:-1] != state[:-1] or spool.last[-1] > state[-1]):
        return False
    if bool((values[1:] < values[:-1]).any()):
        return False
    spool.last = (*fixed, int(values[-1]))
    return True
