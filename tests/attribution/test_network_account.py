"""The network's half of attribution, through the whole engine: golden values and what may not be claimed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.attribution.build import attributed, rows, shares

Row = dict[str, Any]


def kernel(start: int, end: int) -> Row:
    return {
        "start_ns": start,
        "end_ns": end,
        "op_class": "comm",
        "name": "ncclDevKernel_AllToAll",
        "comm_op": "AllToAll",
    }


def stop_and_wait(n: int, issue: int, flight: int, size: int) -> tuple[list[Row], list[Row]]:
    posts = [
        {"enter_ns": k * (issue + flight), "exit_ns": k * (issue + flight) + issue, "wr_id": k, "bytes": size}
        for k in range(n)
    ]
    return posts, [{"seen_ns": p["exit_ns"] + flight, "wr_id": p["wr_id"]} for p in posts]


def test_g4a_stop_and_wait(tmp_path: Path) -> None:
    posts, completions = stop_and_wait(1_000, 300, 8_000, 4_096)
    run = attributed(
        tmp_path,
        {"network": {"beta_bytes_per_s": 50_000_000_000}},
        gpu_ops=[kernel(0, 8_300_000)],
        nvtx=[{"start_ns": 0, "end_ns": 8_300_000, "text": "step_0"}],
        rdma_posts=posts,
        rdma_completions=completions,
    )
    assert shares(run) == {"blocking_rtt": 7_918_000, "ctl_post": 300_000, "rdma_transfer": 82_000}
    assert rows(run, "SELECT count(*) FILTER (chain), count(*) FILTER (blocked) FROM rdma_messages") == [(1_000, 999)]


def test_g4b_the_same_messages_pipelined(tmp_path: Path) -> None:
    """Posted every 300 ns without waiting; 307 700 from the first post to the last completion."""
    posts = [{"enter_ns": 300 * k, "exit_ns": 300 * k, "wr_id": k, "bytes": 4_096} for k in range(1_000)]
    run = attributed(
        tmp_path,
        {"network": {"beta_bytes_per_s": 50_000_000_000, "rtt0_ns": 7_918}},
        gpu_ops=[kernel(0, 307_700)],
        nvtx=[{"start_ns": 0, "end_ns": 307_700, "text": "step_0"}],
        rdma_posts=posts,
        rdma_completions=[{"seen_ns": p["exit_ns"] + 8_000, "wr_id": p["wr_id"]} for p in posts],
        thread_states=[{"tid": 9, "start_ns": 0, "end_ns": 307_700, "state": "running"}],
    )
    assert shares(run) == {"ctl_loop": 217_782, "net_latency": 7_918, "rdma_transfer": 82_000}
    assert rows(run, "SELECT count(*) FILTER (chain) FROM rdma_messages") == [(0,)]
