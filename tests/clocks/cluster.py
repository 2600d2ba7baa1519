"""A small cluster with known clocks: exact times of a run on one true clock, written as each node's clock shows them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.lake.layout import RunDir
from pipeline.model.schema import TABLES

EPOCH = 1_790_000_000_000_000_000


@dataclass(frozen=True)
class Clock:
    """What a node's clock shows at true time t: t + offset + (t - EPOCH) * drift."""

    offset_ns: int = 0
    drift_ppm: float = 0.0

    def shows(self, true_ns: int) -> int:
        return true_ns + self.offset_ns + round((true_ns - EPOCH) * self.drift_ppm * 1e-6)


@dataclass(frozen=True)
class Operation:
    """A collective on the true clock: arrivals by rank, and how long after the last arrival each rank ends."""

    arrivals: dict[int, int]
    ends: dict[int, int]


def collectives(
    n_ranks: int, n: int, *, seed: int, period_ns: int = 50_000_000, jitter_ns: int = 400_000
) -> list[Operation]:
    """n collectives, each rank late at random, ends within 20 µs to 60 µs of the last arrival."""
    chance = random.Random(seed)
    found = []
    for k in range(n):
        begin = EPOCH + 1_000_000 + k * period_ns
        arrivals = {rank: begin + chance.randrange(jitter_ns) for rank in range(n_ranks)}
        last = max(arrivals.values())
        found.append(Operation(arrivals, {rank: last + chance.randrange(20_000, 60_000) for rank in range(n_ranks)}))
    return found


def write(
    folder: Path,
    nodes: dict[int, str],
    clocks: dict[str, Clock],
    operations: list[Operation],
    *,
    name: str = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    comm_id: str | None = None,
) -> RunDir:
    """The run as ingest leaves it: one capture and file a rank, on its node's UTC."""
    run_dir = RunDir(folder)
    run_dir.path.mkdir(parents=True, exist_ok=True)
    captures: list[dict[str, Any]] = []
    ranks: list[dict[str, Any]] = []
    for rank, node in nodes.items():
        clock = clocks[node]
        rows = [
            {
                "rank": rank, "device": 0, "context": 1, "stream": 7, "op_class": "comm", "name": name,
                "start_ns": clock.shows(op.arrivals[rank]), "end_ns": clock.shows(op.ends[rank]),
            }
            for op in operations if rank in op.arrivals
        ]  # fmt: skip
        capture = f"c{rank:04d}"
        put(run_dir, "gpu_ops", capture, rows)
        if comm_id is not None:
            calls = [
                {"rank": rank, "comm_id": comm_id, "seq": seq, "op": "AllReduce", "source": "nvtx",
                 "start_ns": row["start_ns"], "end_ns": row["end_ns"], "arrival_ns": row["start_ns"]}
                for seq, row in enumerate(rows)
            ]  # fmt: skip
            put(run_dir, "comm_ops", capture, calls)
        times = [row["start_ns"] for row in rows]
        captures.append(
            {
                "capture_id": capture, "name": f"{node}/{rank}.sqlite", "kind": "nsys_sqlite", "host": node, "status": "ok",
                "clock": "realtime", "offset_ns": 5, "offset_error_ns": 0, "first_ns": min(times, default=None), "last_ns": max(times, default=None),
            }
        )  # fmt: skip
        ranks.append({"rank": rank, "node": node, "pid": rank, "local_rank": 0})
    put(run_dir, "captures", "ingest", captures)
    put(run_dir, "ranks", "ingest", ranks)
    return run_dir


def put(run_dir: RunDir, table: str, name: str, rows: list[dict[str, Any]]) -> None:
    schema = TABLES[table].arrow_schema()
    full = [{**dict.fromkeys(schema.names), **row} for row in rows]
    run_dir.write_batches(table, name, pa.Table.from_pylist(full, schema=schema).to_batches())


def query(run_dir: RunDir, text: str) -> list[tuple[Any, ...]]:
    connection = run_dir.connect()
    try:
        return connection.execute(text).fetchall()
    finally:
        connection.close()


def contents(run_dir: RunDir) -> dict[str, bytes]:
    """Every file of the run with its bytes."""
    return {
        str(path.relative_to(run_dir.path)): path.read_bytes()
        for path in sorted(run_dir.path.rglob("*"))
        if path.is_file()
    }
