"""Reads a `rdma-ebpf-csv-1` file as ingest does, without writing, and prints records a second and peak memory.

PYTHONPATH=. python benchmarks/read_ebpf.py ebpf.csv
"""

from __future__ import annotations

import resource
import sys
import time
from collections import Counter
from pathlib import Path

from pipeline.model.capture import Account
from pipeline.model.run import RunConfig
from pipeline.sources import ebpf_csv


def measure(path: Path) -> dict[str, float]:
    """Wall and processor time in s, records a second by each, peak memory in MB, rows."""
    with path.open("rb") as file:
        records = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 24), b""))
    capture = ebpf_csv.inspect(path, RunConfig())
    rows: Counter[str] = Counter()
    wall, processor = time.perf_counter(), time.process_time()
    for table, batch in ebpf_csv.read(capture, {}, "node", RunConfig(), Account()):
        rows[table] += batch.num_rows
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    return {
        "records": records,
        "rows": rows.total(),
        "wall_s": round(wall, 2),
        "processor_s": round(processor, 2),
        "records_per_s": round(records / wall),
        "records_per_processor_s": round(records / processor),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


if __name__ == "__main__":
    for name, value in measure(Path(sys.argv[1])).items():
        print(f"{name:24} {value}")  # noqa: T201
