"""Small helpers that sources of text share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.model.schema import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

HEAD_BYTES = 64 << 10
INT64_MAX = (1 << 63) - 1


def head(path: Path, size: int = HEAD_BYTES) -> bytes:
    """The first bytes of a text file; nothing for folders, binary files and files that can't be read."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            data = file.read(size)
    except OSError:
        return b""
    return b"" if b"\0" in data[:4096] else data


def batches(table: str, rows: Iterable[Mapping[str, Any]], size: int = 50_000) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(table, batch) of rows; columns that a row does not name are NULL."""
    import pyarrow as pa

    schema = TABLES[table].arrow_schema()
    chunk: list[Mapping[str, Any]] = []

    def batch(rows: Sequence[Mapping[str, Any]]) -> tuple[str, pa.RecordBatch]:
        return table, pa.record_batch([pa.array([r.get(f.name) for r in rows], f.type) for f in schema], schema=schema)

    for row in rows:
        chunk.append(row)
        if len(chunk) >= size:
            yield batch(chunk)
            chunk = []
    if chunk:
        yield batch(chunk)


def conform(table: str, found: pa.Table) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(table, batch) of a query's result, in the schema's order and types; columns that it lacks are NULL."""
    import pyarrow as pa

    schema = TABLES[table].arrow_schema()
    columns = [
        found[f.name].cast(f.type) if f.name in found.column_names else pa.nulls(found.num_rows, f.type) for f in schema
    ]
    for batch in pa.table(columns, schema=schema).to_batches():
        if batch.num_rows:
            yield table, batch


def int64(value: Any) -> int | None:
    """`value` if it is an integer that a BIGINT holds."""
    fits = isinstance(value, int) and not isinstance(value, bool) and -INT64_MAX - 1 <= value <= INT64_MAX
    return value if fits else None


def number_in_name(path: Path) -> int | None:
    """The last number in a file's name: its rank, where names carry one (`..._rank_container-node02_5`, `_dump_3`)."""
    found = re.findall(r"\d+", path.stem if path.suffix in (".json", ".pkl", ".pickle", ".jsonl") else path.name)
    return int(found[-1]) if found and len(found[-1]) < 10 else None
