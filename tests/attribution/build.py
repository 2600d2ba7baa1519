"""Literal rows → a staged run, for tests: `build(tmp_path, gpu_ops=[...], nvtx=[...])`, then `attribute`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.attribution.engine import attribute
from pipeline.lake.layout import RunDir
from pipeline.model.run import RunConfig, parse
from pipeline.model.schema import TABLES

Row = Mapping[str, Any]

# What a row means where a test does not say; columns without a default are NULL.
DEFAULTS: dict[str, dict[str, Any]] = {
    "ranks": {"node": "n0", "pid": 1},
    "gpu_ops": {"rank": 0, "device": 0, "context": 1, "stream": 7, "op_class": "compute", "name": "kernel"},
    "cuda_api": {"rank": 0, "tid": 1, "name": "cudaLaunchKernel"},
    "nvtx": {"rank": 0, "tid": 1, "kind": "push_pop"},
    "os_calls": {"rank": 0, "tid": 1},
    "thread_states": {"node": "n0", "pid": 1, "tid": 1},
    "rdma_posts": {"node": "n0", "rank": 0, "pid": 1, "tid": 9, "qp": 1, "opcode": "RDMA_WRITE", "n_wr": 1,
                   "signaled": True, "ret": 0, "source": "bpftrace"},
    "rdma_completions": {"node": "n0", "rank": 0, "pid": 1, "tid": 9, "qp": 1, "status": 0},
    "comm_ops": {"rank": 0},
    "losses": {"node": "n0"},
    "captures": {"status": "ok"},
}  # fmt: skip


def build(folder: Path, **tables: Sequence[Row]) -> RunDir:
    """A run's folder below `folder` with these rows. Without `ranks`, one row for each rank that occurs."""
    import pyarrow as pa

    run_dir = RunDir(folder / "staged")
    run_dir.path.mkdir(parents=True, exist_ok=True)
    if "ranks" not in tables:
        found = {row.get("rank", DEFAULTS.get(name, {}).get("rank")) for name, rows in tables.items() for row in rows}
        tables = {**tables, "ranks": [{"rank": rank, "pid": rank + 1} for rank in sorted(found - {None})]}
    for name, rows in tables.items():
        if not rows:
            continue
        schema = TABLES[name].arrow_schema()
        full = [{**dict.fromkeys(schema.names), **DEFAULTS.get(name, {}), **row} for row in rows]
        unknown = {key for row in full for key in row} - set(schema.names)
        assert not unknown, f"{name} has no column {sorted(unknown)}"
        run_dir.write_batches(name, "test", [pa.RecordBatch.from_pylist(full, schema=schema)])
    return run_dir


def attributed(folder: Path, config: Mapping[str, Any] | None = None, **tables: Sequence[Row]) -> RunDir:
    """`build`, then attribution; `config` as in run.toml."""
    run_dir = build(folder, **tables)
    attribute(run_dir, parse(dict(config)) if config else RunConfig())
    return run_dir


def rows(run_dir: RunDir, query: str) -> list[tuple[Any, ...]]:
    """Rows of a query over the run's tables; derived tables without rows are empty."""
    connection = run_dir.connect()
    try:
        for table in TABLES.values():
            if table.derived and not run_dir.files(table.name):
                columns = ", ".join(f"{column.name} {column.type}" for column in table.columns)
                connection.execute(f"CREATE TEMP TABLE {table.name} ({columns})")
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def shares(run_dir: RunDir, rank: int = 0, step: int | None = None) -> dict[str, int]:
    """Attributed ns by category, leaves of ctl_cpu under their own names; categories with 0 left out."""
    where = f"rank = {rank}" + (f" AND step = {step}" if step is not None else "")
    found = rows(
        run_dir,
        f"SELECT category, sum(attributed_ns)::BIGINT FROM breakdown WHERE {where} GROUP BY ALL "
        "HAVING sum(attributed_ns) > 0 ORDER BY category",
    )
    return dict(found)
