"""Small literal lakes that reports are tested on."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.lake.layout import RunDir, open_connection
from pipeline.model.schema import TABLES

T0 = 1_790_000_000_000_000_000
MS = 1_000_000


def put(run: RunDir, table: str, rows: list[dict[str, Any]]) -> None:
    """Write literal rows; columns that a row does not name are NULL."""
    schema = TABLES[table].arrow_schema()
    full = [{name: row.get(name) for name in schema.names} for row in rows]
    assert all(set(row) <= set(schema.names) for row in rows)
    run.write_batches(table, "rows", pa.Table.from_pylist(full, schema=schema).to_batches())


def new_run(lake: Path, run_id: str, config: dict[str, Any] | None = None) -> RunDir:
    run = RunDir(lake / f"run={run_id}")
    run.path.mkdir(parents=True)
    run.write_manifest({"run": run_id, "config": config or {}})
    return run


# Two ranks, four steps of 100 ms; step 0 is cut by the capture. Rank 1 is slow in step 3.
# category: (evidence, ms on rank 0, ms on rank 1) in a usual step
USUAL = {
    "compute": ("measured_nsys", 55, 60),
    "wait_straggler": ("inferred", 5, 0),
    "rdma_transfer": ("inferred", 20, 20),
    "ctl_schedule": ("measured_ebpf", 4, 4),
    "ctl_loop": ("measured_ebpf", 3, 3),
    "ctl_post": ("measured_ebpf", 2, 2),
    "net_latency": ("inferred", 1, 1),
    "net_excess": ("inferred", 2, 2),
    "memcpy": ("measured_nsys", 3, 3),
    "host_launch": ("measured_nsys", 5, 5),
}


def _mfu(parts: list[dict[str, Any]]) -> list[tuple[str, Fraction]]:
    """MFU and compute_loss points of literal breakdown rows: 40 ms of each rank and step are ideal."""
    wall = sum(p["attributed_ns"] for p in parts)
    compute = sum(p["attributed_ns"] for p in parts if p["category"] == "compute")
    ideal = 40 * MS * len({(p["rank"], p["step"]) for p in parts})
    return [("mfu", Fraction(100 * ideal, wall)), ("compute_loss", Fraction(100 * (compute - ideal), wall))]


def small(lake: Path, run_id: str = "small", *, kernel: str = "gemm_bf16", slow_ms: int = 30) -> Path:
    """Two ranks, four steps, every table of a report; rank 1 computes `slow_ms` longer in step 3. Returns the lake."""
    run = new_run(
        lake,
        run_id,
        {"model": {"flops_per_step": 7.9152e13}, "run": {"note": "literal rows"}},
    )
    put(
        run,
        "captures",
        [
            {
                "capture_id": "a" * 16, "name": "node0/rank0.sqlite", "kind": "nsys_sqlite", "tool": "nsys", "tool_version": "2025.1",
                "host": "node0", "bytes": 123_456, "status": "ok", "rows": 1000, "clock": "realtime", "offset_ns": 0,
                "offset_error_ns": 0, "present": "gpu_ops, nvtx", "missing": "os_calls",
            },
            {
                "capture_id": "b" * 16, "name": "node1/rank2.sqlite", "kind": "nsys_sqlite", "tool": "nsys", "host": "node1",
                "bytes": 130, "status": "unusable", "reason": "a Git LFS pointer, not the file; run: git lfs pull", "rows": 0,
            },
        ],
    )  # fmt: skip
    put(
        run,
        "ranks",
        [
            {"rank": r, "node": f"node{r}", "local_rank": 0, "pid": 100 + r, "gpu_name": "NVIDIA H100 80GB HBM3", "nic": "mlx5_0"}
            for r in (0, 1)
        ],
    )  # fmt: skip
    steps, parts, pieces = [], [], []
    for rank in (0, 1):
        at = T0
        for step in range(4):
            usual = {name: row[1 + rank] * MS for name, row in USUAL.items()}
            if step == 3:
                usual["compute"] += slow_ms * MS if rank == 1 else 0
                usual["wait_straggler"] += slow_ms * MS if rank == 0 else 0
            wall = sum(usual.values())
            steps.append(
                {"rank": rank, "step": step, "start_ns": at, "end_ns": at + wall, "source": "nvtx", "confidence": 1.0,
                 "complete": step > 0, "outlier": False}
            )  # fmt: skip
            start = at
            for name, ns in usual.items():
                parts.append(
                    {"rank": rank, "step": step, "category": name, "evidence": USUAL[name][0], "attributed_ns": ns,
                     "exclusive_ns": None if name.startswith("ctl_") else ns, "inclusive_ns": ns, "hidden_ns": 0,
                     "lo_ns": ns if USUAL[name][0] != "inferred" else ns * 9 // 10,
                     "hi_ns": ns if USUAL[name][0] != "inferred" else ns * 11 // 10}
                )  # fmt: skip
                if ns:
                    swept = "ctl_cpu" if name in ("ctl_schedule", "ctl_loop", "ctl_post") else name
                    pieces.append(
                        {"rank": rank, "step": step, "start_ns": start, "end_ns": start + ns, "category": swept,
                         "evidence": USUAL[name][0]}
                    )  # fmt: skip
                start += ns
            at += wall
    put(run, "steps", steps)
    put(run, "breakdown", [p for p in parts if p["attributed_ns"]])
    put(run, "segments", pieces)
    # 7.9152e13 FLOP over 2 ranks at 989.4 TFLOP/s: 40 ms of every step.
    put(
        run,
        "mfu",
        [
            {"scope": scope, "rank": rank, "step": step, "category": category, "points": float(points), "evidence": "modelled",
             "numerator": str(points.numerator), "denominator": str(points.denominator)}
            for scope, rank, step, of in (
                ("run", None, None, [p for p in parts if p["step"] > 0]),
                *(("rank", r, None, [p for p in parts if p["step"] > 0 and p["rank"] == r]) for r in (0, 1)),
                *(("step", None, s, [p for p in parts if p["step"] == s]) for s in (1, 2, 3)),
            )
            for category, points in _mfu(of)
        ],
    )  # fmt: skip
    put(run, "run_facts", [{"name": "flops_ranks", "value": "2", "text": "the step's FLOPs are shared by 2 ranks"}])
    put(
        run,
        "gpu_ops",
        [
            {"rank": 0, "device": 0, "context": 1, "stream": 7, "start_ns": T0 + 100 * MS, "end_ns": T0 + 155 * MS,
             "op_class": "compute", "name": kernel, "launch_start_ns": T0 + 99 * MS, "launch_end_ns": T0 + 99 * MS + 8000,
             "launch_tid": 4242, "correlation_id": 9},
            {"rank": 0, "device": 0, "context": 1, "stream": 8, "start_ns": T0 + 155 * MS, "end_ns": T0 + 192 * MS,
             "op_class": "comm", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "comm_op": "AllReduce", "correlation_id": 10},
        ],
    )  # fmt: skip
    put(run, "nvtx", [{"rank": 0, "tid": 1, "kind": "push_pop", "start_ns": T0, "end_ns": T0 + MS, "text": "step_0"}])
    messages, posts = [], []
    for i in range(8):
        at = T0 + 160 * MS + i * 3 * MS
        size = 1 << (12 + 2 * (i % 4))
        flight = 6_000 + size // 45
        posts.append({"node": "node0", "rank": 0, "pid": 100, "tid": 77, "nic": "mlx5_0", "qp": 5, "wr_id": i, "bytes": size,
                      "enter_ns": at, "exit_ns": at + 1_200, "opcode": "RDMA_WRITE", "n_wr": 1})  # fmt: skip
        messages.append({"node": "node0", "rank": 0, "pid": 100, "tid": 77, "nic": "mlx5_0", "qp": 5, "wr_id": i, "bytes": size,
                         "opcode": "RDMA_WRITE", "enter_ns": at, "exit_ns": at + 1_200, "complete_ns": at + 1_200 + flight,
                         "outstanding_at_post": 0, "blocked": False, "status": 0, "opcode_class": "write",
                         "service_start_ns": at + 1_200, "service_end_ns": at + 1_200 + size // 45, "chain": False})  # fmt: skip
    put(run, "rdma_posts", posts)
    put(run, "rdma_messages", messages)
    put(
        run,
        "thread_states",
        [
            {"node": "node0", "pid": 100, "tid": 77, "name": "NCCL proxy", "start_ns": T0 + 158 * MS, "end_ns": T0 + 170 * MS,
             "state": "running", "cpu": 3},
            {"node": "node0", "pid": 100, "tid": 77, "name": "NCCL proxy", "start_ns": T0 + 170 * MS, "end_ns": T0 + 174 * MS,
             "state": "runnable", "other_tid": 91},
        ],
    )  # fmt: skip
    put(
        run,
        "fits",
        [
            {"node": "node0", "nic": "mlx5_0", "peer_class": "all", "op": "write", "initiator": "cpu", "n": 8, "status": "both",
             "alpha_ns": 6000.0, "alpha_lo": 5800.0, "alpha_hi": 6300.0, "beta_bytes_per_s": 45e9, "beta_lo": 44e9, "beta_hi": 46e9,
             "n_half_bytes": 270_000.0, "rtt0_ns": 4500, "beta_source": "fit"},
            {"node": "node1", "nic": "mlx5_0", "peer_class": "all", "op": "write", "initiator": "cpu", "n": 3,
             "status": "unidentified"},
        ],
    )  # fmt: skip
    put(
        run,
        "waits",
        [
            {"rank": 0, "step": s, "op": "AllReduce", "kind": "straggler", "culprit_rank": 1, "start_ns": T0 + s * 100 * MS,
             "end_ns": T0 + s * 100 * MS + w * MS, "wait_ns": w * MS, "clock_error_ns": 40_000, "within_clock_error": False}
            for s, w in ((1, 5), (2, 5), (3, 5 + slow_ms))
        ],
    )  # fmt: skip
    put(
        run,
        "delay_cost",
        [
            {"victim_rank": 0, "culprit_rank": 1, "step": s, "category": "compute", "delay_ns": w * MS, "hop": 0}
            for s, w in ((1, 5), (2, 5), (3, 5 + slow_ms))
        ],
    )  # fmt: skip
    put(
        run,
        "findings",
        [
            {"code": "straggler", "severity": "warning", "rank": 1, "step": 3, "measure": "wait of the others, ms",
             "value": 35.0, "threshold": 10.0, "evidence": "inferred",
             "text": "Rank 1 came 35 ms late to AllReduce in step 3 while it computed.",
             "confounders": "excluded: clock error (0.04 ms); not excluded: more work given to the rank",
             "next": "compare the input sizes of the ranks"},
        ],
    )  # fmt: skip
    put(
        run,
        "clock_offsets",
        [
            {"node": "node0", "reference": "node0", "offset_ns": 0, "error_ns": 0, "drift_ppb": 0.0, "at_ns": T0, "status": "reference"},
            {"node": "node1", "reference": "node0", "offset_ns": -84_500, "error_ns": 20_000, "drift_ppb": 12.5, "at_ns": T0, "n": 4,
             "status": "fitted"},
        ],
    )  # fmt: skip
    return lake


def large(lake: Path, ranks: int = 64, steps: int = 100) -> Path:
    """A lake of the size of a 64-GPU incident: every rank and step with twelve categories, fits and waits. Returns the lake."""
    run = new_run(lake, f"large-{ranks}")
    connection = open_connection()
    connection.execute(
        f"""CREATE TABLE grid AS SELECT r AS rank, s AS step, {T0} + s * 120000000 AS start_ns,
            {T0} + (s + 1) * 120000000 AS end_ns FROM range({ranks}) a(r), range({steps}) b(s)"""
    )
    run.write(
        "steps",
        "rows",
        connection,
        "SELECT *, 'nvtx' AS source, 1.0 AS confidence, step > 0 AS complete, false AS outlier FROM grid",
    )
    names = ["wait_straggler", "rdma_transfer", "ctl_schedule", "ctl_loop", "ctl_post", "net_latency", "net_excess", "comm_unattributed",
             "memcpy", "host_launch", "gpu_dependency"]  # fmt: skip
    values = ", ".join(f"('{name}', {i})" for i, name in enumerate(names))
    connection.execute(
        f"""CREATE TABLE parts AS
        WITH other AS (SELECT g.*, n AS category,
            CAST(1000000 + 4000000 * abs(sin(rank * 0.7 * (i + 1) + step * 0.13)) + (rank = 17 AND i = 0)::INT * 3000000 * (step % 10) AS BIGINT) AS ns
          FROM grid g, (VALUES {values}) v(n, i))
        SELECT rank, step, category, ns FROM other
        UNION ALL SELECT rank, step, 'compute', 120000000 - sum(ns) FROM other GROUP BY rank, step"""
    )
    evidence = "CASE WHEN category LIKE 'ctl%' THEN 'measured_ebpf' WHEN category IN ('compute', 'memcpy', 'host_launch') THEN 'measured_nsys' ELSE 'inferred' END"
    run.write(
        "breakdown", "rows", connection,
        f"SELECT rank, step, category, {evidence} AS evidence, ns AS attributed_ns, ns AS inclusive_ns, 0 AS hidden_ns, ns AS lo_ns, ns AS hi_ns FROM parts",
    )  # fmt: skip
    run.write(
        "segments", "rows", connection,
        f"""SELECT p.rank, p.step, g.start_ns + coalesce(sum(ns) OVER w, 0) AS start_ns, g.start_ns + coalesce(sum(ns) OVER w, 0) + ns AS end_ns,
            CASE WHEN category LIKE 'ctl%' THEN 'ctl_cpu' ELSE category END AS category, {evidence} AS evidence
            FROM parts p JOIN grid g USING (rank, step)
            WINDOW w AS (PARTITION BY p.rank, p.step ORDER BY category ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)""",
    )  # fmt: skip
    run.write(
        "ranks", "rows", connection,
        f"SELECT r AS rank, 'node' || lpad(CAST(r // 8 AS VARCHAR), 2, '0') AS node, r % 8 AS local_rank, 'NVIDIA H100 80GB HBM3' AS gpu_name, 'mlx5_' || (r % 8) AS nic FROM range({ranks}) a(r)",
    )  # fmt: skip
    run.write(
        "captures", "rows", connection,
        f"SELECT 'node' || lpad(CAST(r // 8 AS VARCHAR), 2, '0') || '/rank' || r || '.sqlite' AS name, 'nsys_sqlite' AS kind, 'nsys' AS tool, 'ok' AS status, 100000 AS rows, 500 AS offset_error_ns FROM range({ranks}) a(r)",
    )  # fmt: skip
    messages = f"""SELECT 'node' || lpad(CAST(r // 8 AS VARCHAR), 2, '0') AS node, r AS rank, r AS tid, 'mlx5_' || (r % 8) AS nic, 5 AS qp, 1 << (10 + i % 12) AS bytes,
        {T0} + i * 1000000 AS enter_ns, {T0} + i * 1000000 + 1200 AS exit_ns, {T0} + i * 1000000 + 7200 + (1 << (10 + i % 12)) // 45 + (i * 37) % 400 AS complete_ns,
        i % 3 AS outstanding_at_post, 'write' AS opcode_class, 0 AS status FROM range({ranks}) a(r), range(600) b(i)"""
    run.write("rdma_messages", "rows", connection, messages)
    run.write(
        "rdma_posts", "rows", connection, f"SELECT node, rank, tid, nic, qp, bytes, enter_ns, exit_ns FROM ({messages})"
    )
    run.write(
        "fits", "rows", connection,
        f"SELECT 'node' || lpad(CAST(r // 8 AS VARCHAR), 2, '0') AS node, 'mlx5_' || (r % 8) AS nic, 'all' AS peer_class, 'write' AS op, 'cpu' AS initiator, 600 AS n, 'both' AS status, 6000.0 AS alpha_ns, 5900.0 AS alpha_lo, 6200.0 AS alpha_hi, 45e9 AS beta_bytes_per_s, 44e9 AS beta_lo, 46e9 AS beta_hi, 270000.0 AS n_half_bytes, 'fit' AS beta_source FROM range({ranks}) a(r)",
    )  # fmt: skip
    run.write(
        "waits", "rows", connection,
        "SELECT rank, step, 'AllToAll' AS op, 'straggler' AS kind, 17 AS culprit_rank, start_ns, start_ns + ns AS end_ns, ns AS wait_ns, 900 AS clock_error_ns, false AS within_clock_error FROM parts JOIN grid USING (rank, step) WHERE category = 'wait_straggler' AND rank <> 17",
    )  # fmt: skip
    connection.close()
    return lake


EVIL = "<script>alert('kernel')</script>"


def evil(lake: Path) -> Path:
    """The small lake, with markup in every kind of text that comes from traces."""
    small(lake, kernel=EVIL)
    run = RunDir(lake / "run=small")
    put(run, "findings", [{"code": EVIL, "severity": EVIL, "text": EVIL, "measure": EVIL, "value": 1.0, "threshold": 0.5,
                                   "confounders": EVIL, "next": EVIL, "node": EVIL, "nic": EVIL, "evidence": EVIL}])  # fmt: skip
    put(
        run,
        "captures",
        [{"capture_id": "x", "name": EVIL, "status": "ok", "reason": EVIL, "tool": EVIL, "host": EVIL}],
    )
    put(run, "ranks", [{"rank": 0, "node": EVIL, "gpu_name": EVIL, "nic": EVIL}])
    put(run, "fits", [{"node": "node0", "nic": "mlx5_0", "op": EVIL, "status": EVIL, "peer_class": EVIL}])
    return lake
