"""Reading a capture by a source, for the tests of sources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.model.capture import Account, Capture
from pipeline.model.run import RunConfig
from pipeline.model.schema import TABLES
from pipeline.sources import source_of

DATA = Path(__file__).parent.parent / "data"


@dataclass
class Read:
    """What a source said and yielded: rows by table, checked against the schema."""

    capture: Capture
    account: Account
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    def column(self, table: str, name: str) -> list[Any]:
        return [row[name] for row in self.tables[table]]

    def brief(self, table: str, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in self.tables[table]]


def read_capture(
    path: Path, ranks: Mapping[int, int] | None = None, node: str = "n0", config: RunConfig | None = None
) -> Read:
    """Read `path` with the source that claims it."""
    source = source_of(path)
    assert source is not None, f"no source claims {path.name}"
    config = config or RunConfig()
    read = Read(source.inspect(path, config), Account())
    for table, batch in source.read(read.capture, ranks or {}, node, config, read.account):
        plain = pa.schema([(f.name, getattr(f.type, "value_type", f.type)) for f in batch.schema])
        assert plain.equals(TABLES[table].arrow_schema()), f"{table}: {batch.schema}"
        read.tables[table] += batch.to_pylist()
    return read


@pytest.fixture
def data() -> Path:
    """The small real captures."""
    return DATA


@pytest.fixture
def read_file() -> Any:
    """`read_capture`."""
    return read_capture


@pytest.fixture
def read_text(tmp_path: Path) -> Any:
    """Write text (or bytes) under a name and read it back with the source that claims it."""

    def _read(text: str | bytes, name: str = "x.csv", **options: Any) -> Read:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_capture(path, **options)

    return _read
