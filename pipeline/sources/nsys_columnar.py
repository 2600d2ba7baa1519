"""Folder exports of Nsight Systems: `parquetdir` and `arrowdir`, one file a table.

The same rows as the SQLite export of the same capture, in narrower and in unsigned types.
"""

from __future__ import annotations

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

KIND = "nsys_columnar"
CONTIGUOUS = True

_MARKS = ("StringIds", "TARGET_INFO_SESSION_START_TIME", "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME")
_SUFFIXES = (".parquet", ".arrow")
_BATCH_ROWS = 65_536


def claims(path: Path) -> bool:
    """A folder that holds one of the tables that every export has."""
    return path.is_dir() and any((path / f"{mark}{suffix}").is_file() for mark in _MARKS for suffix in _SUFFIXES)


def inspect(path: Path, config: RunConfig) -> Capture:
    """What the export holds. Raises UnusableInput where a table can't be read or none is Nsight Systems'."""
    return nsys_capture.inspect(ColumnarExport(path), KIND)


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """See `pipeline.model.capture.Source.read`; all batches of a table come one after another."""
    yield from nsys_capture.read(ColumnarExport(capture.path), capture, ranks, node, config, account)


class ColumnarExport:
    """An opened folder export (`nsys_tables.Export`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems = Problems()
        self._files = {
            file.stem: file for suffix in _SUFFIXES for file in sorted(path.glob(f"*{suffix}")) if file.is_file()
        }
        self.size_bytes = sum(file.stat().st_size for file in self._files.values())
        self._tables: dict[str, Physical] | None = None

    def close(self) -> None:
        """Nothing stays open between calls."""

    def tables(self) -> Mapping[str, Physical]:
        if self._tables is None:
            self._tables = {}
            for name, file in self._files.items():
                with self._opened(file) as table:
                    self._tables[name] = Physical(name, frozenset(table.names), table.rows)
        return self._tables

    def batches(self, raw: Raw, physical: Physical) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        wanted = [column for column in raw.columns if column in physical.columns]
        schema = raw.schema()
        with self._opened(self._files[physical.name]) as table:
            for batch in table.batches(wanted):
                columns = [
                    self._column(batch, column, physical.name, raw)
                    if column in physical.columns
                    else pa.nulls(batch.num_rows, schema.field(column).type)
                    for column in raw.columns
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def sample(self, physical: Physical, columns: Sequence[str]) -> set[tuple[int | None, ...]]:
        import pyarrow as pa

        raw = Raw("sample", physical.name, tuple(columns))
        found: set[tuple[int | None, ...]] = set()
        for batch in self.batches(raw, physical):
            distinct = pa.table(batch.columns, names=list(columns)).group_by(list(columns)).aggregate([])
            found.update(zip(*(distinct.column(c).to_pylist() for c in columns), strict=True))
        return found

    def environment_blocks(self, physical: Physical) -> list[bytes]:
        import pyarrow as pa
        import pyarrow.compute as pc

        raw = Raw("blocks", physical.name, blobs=("value",))
        found: list[bytes] = []
        for batch in self.batches(raw, physical):
            values = batch.column("value").cast(pa.binary())
            holds = pc.fill_null(pc.greater_equal(pc.find_substring(values, "\0"), 0), False)
            found += [value for value in values.filter(holds).to_pylist() if is_environment_block(value)]
        return found

    def _column(self, batch: pa.RecordBatch, name: str, table: str, raw: Raw) -> pa.Array:
        import pyarrow as pa

        values = batch.column(name)
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if name in raw.ints:
            if pa.types.is_uint64(values.type):
                return values.view(pa.int64())
            if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type) or pa.types.is_null(values.type):
                return values.cast(pa.int64())
            self.problems.mistyped[f"{table}.{name}"] = (
                self.problems.mistyped.get(f"{table}.{name}", 0) + len(values) - values.null_count
            )
            return pa.nulls(len(values), pa.int64())
        if not (pa.types.is_large_string(values.type) or pa.types.is_string(values.type)) and not (
            pa.types.is_large_binary(values.type) or pa.types.is_binary(values.type)
        ):
            return pa.nulls(len(values), pa.string() if name in raw.texts else pa.binary())
        raw_bytes = values.cast(pa.large_binary()).cast(pa.binary())
        return clean_array(raw_bytes) if name in raw.texts else raw_bytes

    def _opened(self, file: Path) -> _Table:
        return _Table(file, self.path)


class _Table:
    """A file of an export, Parquet or Arrow (file or stream), opened."""

    def __init__(self, file: Path, export: Path) -> None:
        self._file, self._export = file, export
        self._parquet: Any = None
        self._source: Any = None
        self.names: list[str] = []
        self.rows = 0

    def __enter__(self) -> _Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            if self._file.suffix == ".parquet":
                self._parquet = pq.ParquetFile(self._file)
                self.names = self._parquet.schema_arrow.names
                self.rows = self._parquet.metadata.num_rows
            else:
                self._source = pa.memory_map(str(self._file))
                reader = self._arrow()
                self.names = reader.schema.names
                self.rows = sum(batch.num_rows for batch in reader)
        except (pa.ArrowException, OSError) as error:
            self.__exit__()
            raise self._unusable(error) from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._parquet is not None:
            self._parquet.close()
        if self._source is not None:
            self._source.close()

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Batches of these columns."""
        import pyarrow as pa

        try:
            if self._parquet is not None:
                yield from self._parquet.iter_batches(batch_size=_BATCH_ROWS, columns=columns)
                return
            for batch in self._arrow():
                for first in range(0, batch.num_rows, _BATCH_ROWS):
                    yield batch.slice(first, _BATCH_ROWS).select(columns)
        except (pa.ArrowException, OSError) as error:
            raise self._unusable(error) from None

    def _arrow(self) -> Any:
        import pyarrow as pa

        self._source.seek(0)
        magic = self._source.read(6)
        self._source.seek(0)
        if magic == b"ARROW1":
            file = pa.ipc.open_file(self._source)
            return pa.RecordBatchReader.from_batches(
                file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
            )
        return pa.ipc.open_stream(self._source)

    def _unusable(self, error: Exception) -> UnusableInput:
        kind = "Parquet" if self._file.suffix == ".parquet" else "Arrow"
        return UnusableInput(
            f"{self._file.name} is not a readable {kind} file: {(str(error).splitlines() or ['cut short'])[0]}",
            where=self._export,
            todo="export it again from the .nsys-rep",
        )
