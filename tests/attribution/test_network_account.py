"""The network's half of attribution, through the whole engine: golden values and what may not be claimed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

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


def stop_and_wait(n: int, issue: int, flight: int, size: int, *, pause: int = 0) -> tuple[list[Row], list[Row]]:
    """Posts and their completions, ns; pause: from a completion to the next post."""
    starts = range(0, n * (issue + flight + pause), issue + flight + pause)
    posts = [{"enter_ns": at, "exit_ns": at + issue, "wr_id": k, "bytes": size} for k, at in enumerate(starts)]
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


@pytest.mark.parametrize("queue_pairs", [1, 5])
def test_a_thread_that_waits_for_each_completion_is_a_chain_over_all_of_its_queue_pairs(
    tmp_path: Path, queue_pairs: int
) -> None:
    """It goes round its peers: four messages a queue pair are too few for a chain of their own, and far apart."""
    posts, completions = stop_and_wait(20, 300, 8_000, 4_096)
    for index, (post, done) in enumerate(zip(posts, completions, strict=True)):
        post["qp"] = done["qp"] = 1 + index % queue_pairs
    run = attributed(
        tmp_path,
        {"network": {"beta_bytes_per_s": 50_000_000_000, "rtt0_ns": 7_918}},
        gpu_ops=[kernel(0, 166_000)],
        nvtx=[{"start_ns": 0, "end_ns": 166_000, "text": "step_0"}],
        rdma_posts=posts,
        rdma_completions=completions,
        thread_states=[{"tid": 9, "start_ns": 0, "end_ns": 166_000, "state": "running"}],
    )
    assert shares(run) == {"blocking_rtt": 20 * 7_918, "ctl_post": 20 * 300, "rdma_transfer": 20 * 82}
    assert rows(run, "SELECT count(*) FILTER (chain) FROM rdma_messages") == [(20,)]


@pytest.mark.parametrize("state", ["blocked", "running"])
def test_without_beta_no_transfer_latency_or_excess_is_claimed(tmp_path: Path, state: str) -> None:
    """One size in the middle: the fit can't tell latency from bandwidth, so the flight has no finer name.

    Nor is it the proxy's loop where it polls for the one completion that it waits for."""
    posts, completions = stop_and_wait(20, 300, 8_000, 65_536)
    run = attributed(
        tmp_path,
        gpu_ops=[kernel(0, 166_000)],
        nvtx=[{"start_ns": 0, "end_ns": 166_000, "text": "step_0"}],
        rdma_posts=posts,
        rdma_completions=completions,
        thread_states=[{"tid": 9, "start_ns": 0, "end_ns": 166_000, "state": state}],
    )
    assert shares(run) == {"comm_unattributed": 160_000, "ctl_post": 6_000}
    assert rows(run, "SELECT status, beta_bytes_per_s FROM fits") == [("unidentified", None)]
    assert rows(run, "SELECT count(*) FROM rdma_messages WHERE chain IS NOT NULL OR service_end_ns IS NOT NULL") == [
        (0,)
    ]


def test_gpu_initiated_traffic_leaves_no_post_and_nothing_is_claimed(tmp_path: Path) -> None:
    run = attributed(
        tmp_path,
        {"network": {"beta_bytes_per_s": 50_000_000_000}},
        gpu_ops=[kernel(0, 1_000)],
        nvtx=[{"start_ns": 0, "end_ns": 1_000, "text": "step_0"}],
        counters=[
            {"node": "n0", "device": "mlx5_0", "port": 1, "counter": "port_xmit_data", "at_ns": at, "value": value}
            for at, value in ((0, 0.0), (1_000, 1e6))
        ],
    )
    assert shares(run) == {"comm_unattributed": 1_000}


def test_inside_a_loss_the_network_claims_nothing(tmp_path: Path) -> None:
    posts, completions = stop_and_wait(10, 300, 8_000, 4_096)
    run = attributed(
        tmp_path,
        {"network": {"beta_bytes_per_s": 50_000_000_000, "rtt0_ns": 7_918}},
        gpu_ops=[kernel(0, 83_000)],
        nvtx=[{"start_ns": 0, "end_ns": 83_000, "text": "step_0"}],
        rdma_posts=posts,
        rdma_completions=completions,
        losses=[{"source": "ebpf", "start_ns": 8_300, "end_ns": 16_600, "lost_events": 3}],
    )
    assert shares(run) == {
        "blocking_rtt": 9 * 7_918,
        "ctl_post": 2_700,
        "rdma_transfer": 9 * 82,
        "trace_gap": 8_300,
    }


def test_sparse_messages_are_latency_and_not_blocking(tmp_path: Path) -> None:
    posts, completions = stop_and_wait(10, 300, 8_000, 4_096, pause=50_000)
    run = attributed(
        tmp_path,
        {"network": {"beta_bytes_per_s": 50_000_000_000}},
        gpu_ops=[kernel(0, 533_000)],
        nvtx=[{"start_ns": 0, "end_ns": 533_000, "text": "step_0"}],
        rdma_posts=posts,
        rdma_completions=completions,
        thread_states=[{"tid": 9, "start_ns": 0, "end_ns": 533_000, "state": "blocked"}],
    )
    assert shares(run) == {
        "comm_unattributed": 450_000,
        "ctl_post": 3_000,
        "net_latency": 79_180,
        "rdma_transfer": 820,
    }


def test_a_sender_that_waits_for_credit_is_neither_blocking_nor_merely_sparse(tmp_path: Path) -> None:
    """The receiver's credit comes 10 µs after each completion: the flight is latency, the rest the receiver's."""
    posts, completions = stop_and_wait(20, 300, 8_000, 4_096, pause=10_000)
    waiting = [
        {
            "rank": 0,
            "peer_rank": 1,
            "phase": "SendPeerWait",
            "start_ns": post["exit_ns"],
            "end_ns": following["enter_ns"],
        }
        for post, following in pairwise(posts)
    ]
    run = attributed(
        tmp_path,
        {"network": {"beta_bytes_per_s": 50_000_000_000}},
        ranks=[{"rank": 0, "pid": 1}, {"rank": 1, "pid": 2}],
        gpu_ops=[kernel(0, 356_000), {"rank": 1, "start_ns": 0, "end_ns": 356_000}],
        nvtx=[{"rank": rank, "start_ns": 0, "end_ns": 356_000, "text": "step_0"} for rank in (0, 1)],
        rdma_posts=posts,
        rdma_completions=completions,
        comm_phases=waiting,
        thread_states=[{"tid": 9, "start_ns": 0, "end_ns": 356_000, "state": "running"}],
    )
    assert shares(run) == {
        "ctl_post": 20 * 300,
        "net_latency": 20 * 7_918,
        "rdma_transfer": 20 * 82,
        "wait_credit": 19 * 10_000,
    }
    assert rows(run, "SELECT count(*) FILTER (chain) FROM rdma_messages") == [(0,)]
    assert rows(run, "SELECT kind, culprit_rank, sum(wait_ns) FROM waits GROUP BY ALL") == [("credit", 1, 190_000)]
    assert rows(run, "SELECT culprit_rank, category, sum(delay_ns) FROM delay_cost GROUP BY ALL") == [
        (1, "compute", 190_000)
    ]
    assert rows(run, "SELECT DISTINCT evidence FROM breakdown WHERE category = 'wait_credit'") == [
        ("measured_profiler",)
    ]


def test_without_scheduler_events_loop_and_schedule_are_one(tmp_path: Path) -> None:
    """I7: what the scheduler's events would divide stays with their parent."""
    posts = [{"enter_ns": 300 * k, "exit_ns": 300 * k + 100, "wr_id": k, "bytes": 4_096} for k in range(20)]
    run = attributed(
        tmp_path,
        {"network": {"beta_bytes_per_s": 50_000_000_000, "rtt0_ns": 500}},
        gpu_ops=[kernel(0, 6_382)],
        nvtx=[{"start_ns": 0, "end_ns": 6_382, "text": "step_0"}],
        rdma_posts=posts,
        rdma_completions=[{"seen_ns": p["exit_ns"] + 582, "wr_id": p["wr_id"]} for p in posts],
    )
    found = shares(run)
    assert set(found) == {"ctl_cpu", "ctl_post", "rdma_transfer", "net_latency"}
    assert found["ctl_cpu"] + found["ctl_post"] == 5_800 - 19 * 82
    assert (found["rdma_transfer"], found["net_latency"]) == (20 * 82, 500)
