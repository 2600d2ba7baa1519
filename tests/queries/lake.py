"""Literal rows → a lake of one run, and the library's views over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.lake.connect import LakeConnection, connect
from pipeline.lake.layout import RunDir
from pipeline.model.schema import TABLES


def lake(folder: Path, **tables: Sequence[Mapping[str, Any]]) -> LakeConnection:
    """A read-only connection to a lake with one run, `r`, that has these rows."""
    run_dir = RunDir(folder / "run=r")
    run_dir.path.mkdir(parents=True)
    for name, rows in tables.items():
        schema = TABLES[name].arrow_schema()
        full = [{**dict.fromkeys(schema.names), **row} for row in rows]
        run_dir.write_batches(name, "test", pa.Table.from_pylist(full, schema=schema).to_batches())
    run_dir.write_manifest({})
    return connect(folder)
