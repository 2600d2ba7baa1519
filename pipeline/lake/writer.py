"""Rows of one capture, as they come from a source, into sorted files of a run: bounded memory, any size.

Batches are spooled by table and rank to Arrow files. Events come nearly in order of time, so a spool is
merged by sorting a few batches at a time and giving out what no later batch can precede: about a fifth of
the work of DuckDB's sort, whose payload of some 25 columns is moved (and beyond its memory spilled) as a
whole. Where a spool is far out of order, or has too many sort keys, DuckDB sorts it after all.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.lake.layout import RunDir, open_connection
from pipeline.model.schema import TABLES, Table

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

GROUP_ROWS = 122_880
"""Rows of a row group, DuckDB's own number."""
_MAX_GROUPS = 64
"""Spools of a table, one for each value of its leading sort keys (mostly: one a rank)."""
_MAX_CARRY_BYTES = 200 << 20
"""What a merge may hold back; a spool that needs more is too far out of order for it."""


@dataclass
class _Spool:
    """Batches with one value of the leading sort keys, in arrival order, with the last key's range in each."""

    path: Path
    schema: pa.Schema
    sink: Any
    places: list[int] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        """Append a batch. Each is a stream of its own, so that its text columns may have a dictionary of their own."""
        import pyarrow as pa

        self.places.append(self.sink.tell())
        options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
        with pa.ipc.new_stream(self.sink, self.schema, options=options) as writer:
            writer.write_batch(batch.cast(self.schema))

    def read(self, order: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The batches at these places."""
        import pyarrow as pa

        # Not memory-mapped: pages of the map would count as this process's memory.
        with pa.OSFile(str(self.path)) as source:
            for index in order:
                source.seek(self.places[index])
                yield pa.ipc.open_stream(source).read_next_batch()

    def close(self) -> None:
        self.sink.close()


@dataclass
class _Spools:
    """A table's spools by leading keys; `mergeable` while every row has a whole sort key, and few leading ones."""

    table: Table
    by_key: dict[tuple[Any, ...], _Spool] = field(default_factory=dict)
    rows: int = 0
    mergeable: bool = True


class CaptureWriter:
    """Context manager: `add` batches of tables in any order, then `finish`.

    select: by table and column, an SQL expression over a batch's columns that replaces the column. macros: SQL texts
    that the expressions use. contiguous: a table's batches come one after the other, so that with a second thread a
    table is written while the next one is read. With two threads, `finish` writes two tables at a time.
    """

    def __init__(
        self,
        run_dir: RunDir,
        name: str,
        *,
        select: Mapping[str, Mapping[str, str]] | None = None,
        macros: tuple[str, ...] = (),
        threads: int = 1,
        memory_limit: str = "600MB",
        contiguous: bool = False,
    ) -> None:
        self.run_dir = run_dir
        self.name = name
        self._select = dict(select or {})
        self._macros = macros
        self._threads = threads
        self._memory_limit = memory_limit
        self._folder = run_dir.path / "_work" / f"spool.{name}"
        self._tables: dict[str, _Spools] = {}
        self._mapper: duckdb.DuckDBPyConnection | None = None
        self._pool = ThreadPoolExecutor(max_workers=1) if contiguous and threads > 1 else None
        self._current: str | None = None
        self._sorting = threading.Lock()
        self._written: dict[str, Future[int]] = {}

    def __enter__(self) -> CaptureWriter:
        self._folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        if self._mapper is not None:
            self._mapper.close()
        for spools in self._tables.values():
            for spool in spools.by_key.values():
                spool.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        if kind is not None:
            for table in self._tables:
                self.run_dir.remove(table, self.name)

    def add(self, table: str, batch: pa.RecordBatch) -> None:
        """Take a batch in `table`'s schema; text columns may be dictionaries. Raises ValueError where it is not."""
        if not batch.num_rows:
            return
        batch = _conformed(table, batch)
        if self._pool is not None and table != self._current:
            self._write_behind(table)
        spools = self._tables.setdefault(table, _Spools(TABLES[table]))
        spools.rows += batch.num_rows
        self._spool(spools, self._mapped(table, batch))

    def finish(self) -> dict[str, int]:
        """Write every table's file; rows by table."""
        # Large ones first: the last one to end decides.
        rest = sorted(self._tables.keys() - self._written.keys(), key=lambda table: (-self._tables[table].rows, table))
        with ThreadPoolExecutor(max_workers=self._threads) as pool:
            written = self._written | {table: pool.submit(self._write, table) for table in rest}
            return {table: written[table].result() for table in self._tables}

    def _write_behind(self, table: str) -> None:
        """Begin to write the table before this one. Raises ValueError where this one is being written already."""
        assert self._pool is not None
        if table in self._written:
            raise ValueError(f"{table}: its batches were said to be contiguous")
        if self._current is not None:
            self._written[self._current] = self._pool.submit(self._write, self._current)
        self._current = table

    def _mapped(self, table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
        expressions = self._select.get(table)
        if not expressions:
            return batch
        if self._mapper is None:
            self._mapper = open_connection(threads=1, memory_limit="200MB")
            for macro in self._macros:
                self._mapper.execute(macro)
        self._mapper.register("spool", batch)
        columns = ", ".join(f"{expression} AS {name}" for name, expression in expressions.items())
        found = self._mapper.sql(f"SELECT {columns} FROM spool").to_arrow_table().combine_chunks()
        for name in expressions:
            field = batch.schema.field(name)
            batch = batch.set_column(batch.schema.names.index(name), field, found[name].chunk(0).cast(field.type))
        return batch

    def _spool(self, spools: _Spools, batch: pa.RecordBatch) -> None:
        for key, part in _by_leading_keys(spools, batch):
            spool = spools.by_key.get(key)
            if spool is None:
                spool = spools.by_key[key] = self._open(spools.table.name, len(spools.by_key), batch.schema)
            if spools.mergeable:
                values = part.column(spools.table.sort[-1]).to_numpy()
                spool.ranges.append((int(values.min()), int(values.max())))
            spool.add(part)

    def _open(self, table: str, number: int, schema: pa.Schema) -> _Spool:
        import pyarrow as pa

        path = self._folder / f"{table}.{number}.arrow"
        return _Spool(path, schema, pa.OSFile(str(path), "wb"))

    def _write(self, table: str) -> int:
        spools = self._tables[table]
        for spool in spools.by_key.values():
            spool.close()
        try:
            if spools.mergeable:
                try:
                    self._merge(spools)
                    return spools.rows
                except _TooFarOutOfOrderError:
                    pass
            return self._sort(spools)
        finally:
            for spool in spools.by_key.values():
                spool.path.unlink(missing_ok=True)

    def _merge(self, spools: _Spools) -> None:
        table = spools.table
        target = self.run_dir.file(table.name, self.name)
        partial = target.with_suffix(".partial")
        try:
            with parquet_writer(partial, table, next(iter(spools.by_key.values())).schema) as writer:
                for group in _row_groups(_in_order(spools)):
                    writer.write_table(group, row_group_size=GROUP_ROWS)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        partial.replace(target)

    def _sort(self, spools: _Spools) -> int:
        import pyarrow as pa

        parts = list(spools.by_key.values())

        def batches() -> Iterator[pa.RecordBatch]:
            for spool in parts:
                yield from spool.read(range(len(spool.places)))

        # One at a time: each may use all the memory that is given.
        with self._sorting:
            connection = open_connection(
                threads=self._threads, memory_limit=self._memory_limit, spill=self._folder / "spill"
            )
            try:
                reader = pa.RecordBatchReader.from_batches(parts[0].schema, batches())
                connection.register("spool", reader)
                return self.run_dir.write(spools.table.name, self.name, connection, "SELECT * FROM spool")
            finally:
                connection.close()


class _TooFarOutOfOrderError(Exception):
    """A merge would hold back more than it may."""


def _conformed(table: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    import pyarrow as pa

    plain = TABLES[table].arrow_schema()
    if batch.schema.names != plain.names:
        raise ValueError(f"{table}: columns {batch.schema.names}, expected {plain.names}")
    text = pa.dictionary(pa.int32(), pa.string())
    encoded = [
        pa.field(field.name, text if pa.types.is_string(field.type) and pa.types.is_dictionary(given) else field.type)
        for field, given in zip(plain, batch.schema.types, strict=True)
    ]
    return batch.cast(pa.schema(encoded))


def parquet_writer(path: Path, table: Table, schema: pa.Schema | None = None) -> Any:
    """An Arrow Parquet writer with the lake's encodings: zstd 3, version 2, deltas for integers.

    schema: the table's, in which text columns may be dictionaries; readers see no difference.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = schema or table.arrow_schema()
    integers = [f.name for f in schema if pa.types.is_integer(f.type)]
    return pq.ParquetWriter(
        path,
        schema,
        version="2.6",
        data_page_version="2.0",
        compression="zstd",
        compression_level=3,
        use_dictionary=[f.name for f in schema if f.name not in integers],
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        store_schema=False,
        write_batch_size=1 << 16,
    )


def _by_leading_keys(spools: _Spools, batch: pa.RecordBatch) -> list[tuple[tuple[Any, ...], pa.RecordBatch]]:
    """The batch in parts that have one value of the table's leading sort keys each."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    *leading, final = spools.table.sort
    column = batch.column(final)
    if column.null_count or not pa.types.is_integer(column.type):
        spools.mergeable = False
    if not spools.mergeable:
        return [(("mixed",), batch)]
    values: list[list[Any]] = []
    codes = np.zeros(batch.num_rows, np.int64)
    for name in leading:
        encoded = pc.dictionary_encode(batch.column(name), null_encoding="encode")
        values.append(encoded.dictionary.to_pylist())
        if len(values[-1]) > 1:
            codes = codes * len(values[-1]) + encoded.indices.to_numpy()
    present, counts = np.unique(codes, return_counts=True)
    if len(present) + len(spools.by_key) > _MAX_GROUPS:
        spools.mergeable = False
        return [(("mixed",), batch)]
    if len(present) > 1:
        place = np.searchsorted(present, codes).astype(np.uint16)
        batch = batch.take(pa.array(np.argsort(place, kind="stable")))
    parts = []
    for code, end, count in zip(present.tolist(), np.cumsum(counts).tolist(), counts.tolist(), strict=True):
        key: list[Any] = []
        rest = code
        for each in reversed(values):
            rest, index = divmod(rest, max(1, len(each)))
            key.insert(0, each[index])
        parts.append((tuple(key), batch.slice(end - count, count)))
    return parts


def _in_order(spools: _Spools) -> Iterator[pa.Table]:
    """All rows in the table's order, as tables of some batches each. NULL keys come first, as RunDir.write has it."""
    keys = sorted(spools.by_key, key=lambda key: [(part is not None, part) for part in key])
    for key in keys:
        yield from _merged(spools.by_key[key], spools.table.sort[-1])


def _merged(spool: _Spool, key: str) -> Iterator[pa.Table]:
    """One spool's rows by `key`; equal keys in the order of arrival where batches are in order."""
    import numpy as np
    import pyarrow as pa

    order = sorted(range(len(spool.ranges)), key=lambda index: (spool.ranges[index][0], index))
    held: list[pa.RecordBatch] = []
    held_rows, carry_rows = 0, 0
    for place, batch in enumerate(spool.read(order)):
        held.append(batch)
        held_rows += batch.num_rows
        last = place + 1 == len(order)
        # Waiting until there is twice what could not go last time keeps the work linear.
        if not last and held_rows < max(2 * GROUP_ROWS, 2 * carry_rows):
            continue
        rows = pa.Table.from_batches(held).unify_dictionaries().combine_chunks()
        values = rows.column(key).to_numpy()
        if (values[1:] < values[:-1]).any():
            by_value = np.argsort(values, kind="stable")
            rows = rows.take(pa.array(by_value))
            values = values[by_value]
        free = len(values) if last else int(np.searchsorted(values, spool.ranges[order[place + 1]][0], "left"))
        if free:
            yield rows.slice(0, free)
        carry = rows.slice(free)
        carry_rows = carry.num_rows
        if carry_rows and carry_rows * (rows.nbytes // max(1, rows.num_rows)) > _MAX_CARRY_BYTES:
            raise _TooFarOutOfOrderError
        held = carry.to_batches()
        held_rows = carry_rows


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of a whole number of row groups; the last one as it comes."""
    import pyarrow as pa

    held: list[pa.Table] = []
    rows = 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        if rows >= GROUP_ROWS:
            whole = pa.concat_tables(held).unify_dictionaries()
            full = rows - rows % GROUP_ROWS
            yield whole.slice(0, full)
            held, rows = [whole.slice(full)], rows - full
    if rows:
        yield pa.concat_tables(held)
