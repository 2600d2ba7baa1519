"""How the files of a lake are laid out, measured: sorting, row groups, Parquet version, compression.

    python benchmarks/layout.py [--rows 6400000] [--ranks 64]

One table like gpu_ops, written by DuckDB in each layout into one file; the layout in use is marked. Times are the
median of 9 runs in one process, warm: one rank and step (pruned), one step of all ranks, a full scan of one column.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import duckdb

_ROWS = """
CREATE TABLE ops AS
SELECT (i % {ranks})::BIGINT AS rank, 0::BIGINT AS device, (7 + i % 3)::BIGINT AS stream,
    (1700000000000000000 + (i // {ranks}) * 10000 + hash(i) % 2000)::BIGINT AS start_ns,
    start_ns + 3000 + (hash(i + 1) % 9000)::BIGINT AS end_ns, CASE WHEN i % 50 = 0 THEN 'comm' ELSE 'compute' END AS op_class,
    'kernel_' || (hash(i // 7) % 40) AS name, i::BIGINT AS correlation_id, start_ns - 20000 - (hash(i + 2) % 5000)::BIGINT AS launch_start_ns
FROM range({rows}) AS t(i)
"""
LAYOUTS = {
    "in use: sorted, v2, zstd 3": ("ORDER BY rank, start_ns", "PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 3"),
    "not sorted": ("ORDER BY hash(correlation_id)", "PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 3"),
    "sorted by time alone": ("ORDER BY start_ns, rank", "PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 3"),
    "version 1": ("ORDER BY rank, start_ns", "PARQUET_VERSION v1, COMPRESSION zstd, COMPRESSION_LEVEL 3"),
    "snappy": ("ORDER BY rank, start_ns", "PARQUET_VERSION v2, COMPRESSION snappy"),
    "zstd 9": ("ORDER BY rank, start_ns", "PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 9"),
    "row groups of 10 240": ("ORDER BY rank, start_ns", "PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 3, ROW_GROUP_SIZE 10240"),
    "row groups of 983 040": ("ORDER BY rank, start_ns", "PARQUET_VERSION v2, COMPRESSION zstd, COMPRESSION_LEVEL 3, ROW_GROUP_SIZE 983040"),
}  # fmt: skip


def _median_ms(connection: duckdb.DuckDBPyConnection, query: str) -> float:
    times = []
    for _ in range(9):
        begin = time.perf_counter()
        connection.execute(query).fetchall()
        times.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(times)


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=6_400_000)
    parser.add_argument("--ranks", type=int, default=64)
    options = parser.parse_args()
    connection = duckdb.connect(config={"threads": 2})
    connection.execute(_ROWS.format(rows=options.rows, ranks=options.ranks))
    middle = 1_700_000_000_000_000_000 + options.rows // options.ranks // 2 * 10_000
    print("| layout | bytes a row | written, s | one rank and step, ms | one step of all ranks, ms | one column, ms |")  # noqa: T201
    print("|---|--:|--:|--:|--:|--:|")  # noqa: T201
    with tempfile.TemporaryDirectory() as folder:
        for name, (order, how) in LAYOUTS.items():
            file = Path(folder) / "ops.parquet"
            begin = time.perf_counter()
            connection.execute(f"COPY (FROM ops {order}) TO '{file}' (FORMAT parquet, {how})")
            written = time.perf_counter() - begin
            step = f"start_ns >= {middle} AND start_ns < {middle + 40_000_000}"
            source = f"FROM read_parquet('{file}')"
            pruned = _median_ms(connection, f"SELECT sum(end_ns - start_ns) {source} WHERE rank = 31 AND {step}")
            across = _median_ms(connection, f"SELECT rank, sum(end_ns - start_ns) {source} WHERE {step} GROUP BY rank")
            scan = _median_ms(connection, f"SELECT sum(end_ns) {source}")
            size = file.stat().st_size / options.rows
            print(f"| {name} | {size:.1f} | {written:.2f} | {pruned:.1f} | {across:.1f} | {scan:.1f} |", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
