"""One measured piece of work a process: `python benchmarks/cases.py NAME ARGUMENT...` prints a JSON object.

`rows` is what the work went through; `seconds`, where given, is the time of the work without the process around
it. benchmarks/run.py starts these and takes wall clock, processor time and peak memory from the operating system.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

_NSYS_TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")


def raw_sqlite(path: str) -> dict[str, Any]:
    """Count and sum every column of the event tables: what SQLite needs to decode the file."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = 0
    for table in _NSYS_TABLES:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        sums = ", ".join(f'total("{name}")' for name in names)
        rows += connection.execute(f"SELECT count(*), {sums} FROM {table}").fetchone()[0]
    return {"rows": rows}


def raw_parquetdir(path: str) -> dict[str, Any]:
    """Read every column of the event tables and sum those that are numbers."""
    import duckdb

    connection = duckdb.connect(config={"threads": 2})
    rows = 0
    for table in _NSYS_TABLES:
        file = Path(path) / f"{table}.parquet"
        kinds = connection.execute("SELECT column_name, column_type FROM (DESCRIBE FROM read_parquet($1))", [str(file)])
        sums = ", ".join(
            f'sum(length("{name}"))' if kind == "VARCHAR" else f'sum("{name}")' for name, kind in kinds.fetchall()
        )
        found = connection.execute(f"SELECT count(*), {sums} FROM read_parquet($1)", [str(file)]).fetchone()
        rows += found[0] if found else 0
    return {"rows": rows}


def raw_text(path: str) -> dict[str, Any]:
    """Count lines and separators of a text: every byte seen once."""
    rows = 0
    with Path(path).open("rb") as file:
        while block := file.read(1 << 24):
            rows += block.count(b"\n")
            block.count(b",")
    return {"rows": rows}


def simulate(folder: str, nodes: str, steps: str, scale: str) -> dict[str, Any]:
    """An incident of nodes of eight GPUs; rows: its messages, by the records of posts."""
    from pipeline.simulate import simulate as play

    sizes = {"nodes": int(nodes), "gpus_per_node": 8, "steps": int(steps), "scale": float(scale)}
    play("moe-control-plane", Path(folder), **sizes, truth=False)  # type: ignore[arg-type]
    return {"rows": sum(raw_text(str(path))["rows"] for path in Path(folder).glob("*/ebpf.csv")) // 2}


def ingest(lake: str, run: str, *inputs: str) -> dict[str, Any]:
    """Read captures into a lake, not attributed."""
    from pipeline.ingest import ingest as read

    return {"rows": read(list(inputs), lake, run=run, attribute=False).rows}


def attribute(lake: str, run: str) -> dict[str, Any]:
    """Attribute a run of the lake; rows: its GPU operations, own_s: processor time of the process that hands out tasks."""
    import resource

    import pipeline
    from pipeline.ingest import attribute as derive

    derive(lake, run)
    own = resource.getrusage(resource.RUSAGE_SELF)
    with pipeline.connect(lake, run) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM gpu_ops").fetchone() or (0,)
    return {"rows": rows, "own_s": own.ru_utime + own.ru_stime}


def attribute_messages(lake: str, run: str) -> dict[str, Any]:
    """Attribute a run of the lake; rows: its RDMA messages."""
    import pipeline
    from pipeline.ingest import attribute as derive

    derive(lake, run)
    with pipeline.connect(lake, run) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM rdma_messages").fetchone() or (0,)
    return {"rows": rows}


def raw_gpu_ops(lake: str, run: str) -> dict[str, Any]:
    """Read the columns of GPU operations that attribution needs."""
    import pipeline

    with pipeline.connect(lake, run) as connection:
        (rows, *_) = connection.execute(
            """SELECT count(*), sum(start_ns), sum(end_ns), sum(correlation_id), sum(stream), sum(length(op_class))
            FROM gpu_ops"""
        ).fetchone() or (0,)
    return {"rows": rows}


def report(lake: str, run: str) -> dict[str, Any]:
    """The text report, as the command draws it."""
    from pipeline.reports import render

    text = render(Path(lake), run, "text")
    return {"rows": len(text.splitlines()) if isinstance(text, str) else 0}


def raw_breakdown(lake: str, run: str) -> dict[str, Any]:
    """One sum over the table that a report is drawn from."""
    import pipeline

    with pipeline.connect(lake, run) as connection:
        (rows, _) = connection.execute("SELECT count(*), sum(attributed_ns) FROM breakdown").fetchone() or (0, 0)
    return {"rows": rows}


def pruned_query(lake: str, run: str) -> dict[str, Any]:
    """GPU time by class in one step of one rank, on an open lake: the median of five."""
    return _timed_query(
        lake,
        run,
        """SELECT op_class, count(*) AS n, sum(end_ns - start_ns) FROM gpu_ops
        WHERE rank = 17 AND start_ns >= (SELECT min(start_ns) FROM steps WHERE rank = 17 AND step = 1)
            AND start_ns < (SELECT max(end_ns) FROM steps WHERE rank = 17 AND step = 1) GROUP BY ALL""",
    )


def whole_query(lake: str, run: str) -> dict[str, Any]:
    """The same over all ranks and steps."""
    return _timed_query(lake, run, "SELECT op_class, count(*) AS n, sum(end_ns - start_ns) FROM gpu_ops GROUP BY ALL")


def _timed_query(lake: str, run: str, query: str) -> dict[str, Any]:
    import pipeline

    with pipeline.connect(lake, run) as connection:
        seconds, found = [], []
        for _ in range(5):
            began = time.perf_counter()
            found = connection.execute(query).fetchall()
            seconds.append(time.perf_counter() - began)
    return {"rows": sum(row[1] for row in found), "seconds": sorted(seconds)[2]}


def _messages(count: str) -> tuple[Any, Any, Any]:
    import numpy as np

    generator = np.random.default_rng(1)
    sizes = np.array([1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24])
    drawn = sizes[generator.integers(0, len(sizes), int(count))]
    durations = (6_000 + drawn / 45) * (1 + 0.05 * generator.random(len(drawn)))
    return drawn, durations, np.arange(len(drawn)) * 10 // len(drawn)


def fits(count: str) -> dict[str, Any]:
    """Fit alpha and beta of one path; ends with an error where beta is off by 1 %."""
    from pipeline.attribution.fits import fit_path

    sizes, durations, steps = _messages(count)
    began = time.perf_counter()
    fit = fit_path(sizes, durations, step=steps)
    seconds = time.perf_counter() - began
    expected = 45e9 / 1.025
    if fit.beta_bytes_per_s is None or abs(fit.beta_bytes_per_s / expected - 1) > 0.01:
        raise SystemExit(f"fits: beta {fit.beta_bytes_per_s} instead of {expected}")
    return {"rows": fit.n, "seconds": seconds}


def raw_fits(count: str) -> dict[str, Any]:
    """Least squares over the same messages."""
    import numpy as np

    sizes, durations, _ = _messages(count)
    began = time.perf_counter()
    np.polyfit(sizes, durations, 1)
    return {"rows": len(sizes), "seconds": time.perf_counter() - began}


def to_parquetdir(path: str, folder: str) -> dict[str, Any]:
    """A SQLite export as the folder that `nsys export --type parquetdir` writes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"INTEGER": pa.int64(), "REAL": pa.float64(), "TEXT": pa.string()}
    Path(folder).mkdir(parents=True)
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    written = 0
    for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
        columns = [(row[1], kinds[row[2]]) for row in connection.execute(f"PRAGMA table_info({table})")]
        schema = pa.schema([pa.field(name, kind) for name, kind in columns])
        cursor = connection.execute(f"SELECT * FROM {table}")
        with pq.ParquetWriter(Path(folder) / f"{table}.parquet", schema) as writer:
            while rows := cursor.fetchmany(100_000):
                arrays = [pa.array(values, field.type) for values, field in zip(zip(*rows), schema)]  # noqa: B905
                writer.write_table(pa.table(arrays, schema=schema))
                written += len(rows)
    return {"rows": written}


CASES = {
    function.__name__: function
    for function in (
        simulate, raw_sqlite, raw_parquetdir, raw_text, ingest, attribute, attribute_messages, raw_gpu_ops, report,
        raw_breakdown, pruned_query, whole_query, fits, raw_fits, to_parquetdir,
    )
}  # fmt: skip

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    print(json.dumps(CASES[sys.argv[1]](*sys.argv[2:])))  # noqa: T201
