"""Every view, macro and question: on an empty lake, and exact rows out of literal ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.model.categories import CATEGORIES
from pipeline.model.library import queries_dir
from tests.queries.lake import lake

Rows = Sequence[Mapping[str, Any]]
QUESTIONS = sorted(path.stem for path in (queries_dir() / "questions").glob("*.sql"))

RANKS = [{"rank": r, "node": f"n{r}", "nic": f"mlx5_{r}", "gpu_index": r} for r in (0, 1)]
STEPS = [
    {"rank": 0, "step": s, "start_ns": 100 * s, "end_ns": 100 * s + wall, "complete": True, "outlier": False}
    for s, wall in ((0, 100), (1, 100), (2, 150))
]
CELLS = [
    {"rank": 0, "step": s, "category": category, "evidence": evidence, "attributed_ns": ns}
    for s in (0, 1, 2)
    for category, evidence, ns in (
        ("compute", "measured_nsys", 70),
        ("rdma_transfer", "inferred", 20 if s < 2 else 70),
        ("host_launch", "measured_nsys", 10),
    )
]
QPS = [{"node": "n0", "pid": 1, "qp": 5, "peer_qp": 6, "peer_rank": 1, "peer_class": "same_rail", "at_ns": 0}]
MESSAGES = [
    {"node": "n0", "rank": 0, "pid": 1, "tid": 9, "nic": "mlx5_0", "qp": 5, "bytes": n_bytes, "opcode_class": "write",
     "enter_ns": at, "exit_ns": at + 2, "complete_ns": at + 2 + flight, "outstanding_at_post": 0, "blocked": blocked,
     "status": 0, "step": 0}
    for n_bytes, at, flight, blocked in ((100, 10, 5, False), (120, 20, 7, True), (4096, 1005, 9, True))
]  # fmt: skip
POSTS = [
    {"node": "n0", "rank": 0, "tid": 9, "cpu": 3, "enter_ns": at, "exit_ns": at + ns}
    for at, ns in ((0, 10), (20, 20), (50, 90))
]
STATES = [
    {"node": "n0", "tid": 9, "start_ns": 0, "end_ns": 5, "state": "runnable", "other_tid": 7},
    {"node": "n0", "tid": 9, "start_ns": 9, "end_ns": 12, "state": "runnable", "other_tid": 7},
    {"node": "n0", "tid": 9, "start_ns": 12, "end_ns": 20, "state": "running"},
    {"node": "n0", "tid": 7, "name": "loader", "start_ns": 0, "end_ns": 5, "state": "running"},
]
PIECES = [
    {"rank": 0, "step": 0, "start_ns": a, "end_ns": b, "category": category}
    for a, b, category in ((0, 40, "compute"), (40, 60, "rdma_transfer"), (60, 90, "compute"), (90, 100, "memcpy"))
]
OPS = [
    {"rank": 0, "op_class": "compute", "name": "gemm", "start_ns": 0, "end_ns": 40},
    {"rank": 0, "op_class": "comm", "name": "nccl", "start_ns": 30, "end_ns": 70},
    {"rank": 0, "op_class": "copy", "name": "DtoH", "start_ns": 85, "end_ns": 120, "bytes": 8, "correlation_id": 4,
     "launch_start_ns": 80, "launch_end_ns": 130},
]  # fmt: skip
CALLS = [{"rank": 0, "name": "cudaMemcpy", "start_ns": 80, "end_ns": 130, "correlation_id": 4}]
GAPS = [
    {"rank": 0, "step": 0, "start_ns": a, "end_ns": a + 10, "category": "host_launch"} for a in (0, 20, 500)
]  # fmt: skip

CASES: list[tuple[str, dict[str, Rows], list[tuple[Any, ...]]]] = [
    ("FROM slow_steps(top := 1)", {"steps": STEPS, "breakdown": CELLS},
     [("r", 0, 2, 150, 100, 50, "rdma_transfer", 50)]),
    ("FROM top_kernels()", {"gpu_ops": OPS, "segments": PIECES},
     [("r", "compute", "gemm", 1, 40, 40), ("r", "comm", "nccl", 1, 40, 20), ("r", "copy", "DtoH", 1, 35, 10)]),
    ("FROM message_sizes()", {"rdma_messages": MESSAGES, "rdma_qps": QPS},
     [("r", 0, 1, 64, 2, 220), ("r", 0, 1, 4096, 1, 4096)]),
    ("FROM doorbell_latency()", {"rdma_posts": POSTS}, [("r", "n0", 0, 9, 3, 3, 20, 90, 90, 90, None)]),
    ("FROM proxy_preemption()", {"rdma_posts": POSTS, "thread_states": STATES},
     [("r", "n0", 0, 9, 7, "loader", 2, 8, 5)]),
    ("FROM nic_bandwidth(bucket_ns := 1000)", {"rdma_messages": MESSAGES},
     [("r", "n0", "mlx5_0", 0, 2, 220, 220e6), ("r", "n0", "mlx5_0", 1000, 1, 4096, 4096e6)]),
    ("FROM collectives()",
     {"comm_ops": [{"rank": r, "op": "AllReduce", "bytes": 1000, "n_ranks": 4, "start_ns": 0, "arrival_ns": 10 * r,
                    "end_ns": 100} for r in (0, 5)]},
     [("r", "AllReduce", 4, 1000, 2, 50, 100, 2e10, 3e10)]),
    ("FROM late_by_step()",
     {"delay_cost": [{"victim_rank": 0, "culprit_rank": c, "step": 3, "category": "memcpy", "delay_ns": ns, "hop": 0}
                     for c, ns in ((1, 30), (2, 10))]},
     [("r", 3, 1, 30, 1, "memcpy", 75.0)]),
    ("FROM nic_pair_alpha(small_bytes := 1000)", {"rdma_messages": MESSAGES, "rdma_qps": QPS, "ranks": RANKS},
     [("r", "n0", "mlx5_0", "n1", "mlx5_1", "write", 2, 5, 5, 7)]),
    ("FROM launch_bound(apart_ns := 100)", {"segments": GAPS},
     [("r", 0, 0, 0, 30, 2, 20, 200 / 3), ("r", 0, 0, 500, 510, 1, 10, 100.0)]),
    ("FROM blocking_copies()", {"gpu_ops": OPS, "cuda_api": CALLS}, [("r", 0, "cudaMemcpy", "DtoH", 1, 8, 35, 50)]),
    ("SELECT run, category, n_steps, per_step_ns, before_ns, drift_ns FROM drift() WHERE category = 'host_launch'",
     {"steps": STEPS, "breakdown": CELLS}, [("r", "host_launch", 3, 10.0, None, None)]),
    ("FROM stop_and_wait()", {"rdma_messages": MESSAGES, "rdma_qps": QPS},
     [("r", 0, "mlx5_0", 5, 1, 3, 2, 200 / 3, 16)]),
    ("FROM receiver_latency()", {"rdma_messages": MESSAGES, "rdma_qps": QPS}, [("r", 1, 1, 3, 4316, 7, 9)]),
    ("FROM step_times()", {"steps": STEPS}, [("r", 0, 3, 100, 100, 150, 150, 150)]),
    ("FROM gpu_idle()", {"steps": STEPS, "breakdown": CELLS},
     [("r", 0, "host_launch", "measured_nsys", 30, 3000 / 350)]),
    ("FROM api_calls()", {"cuda_api": CALLS}, [("r", 0, "cudaMemcpy", 1, 50, 50, 50, 50)]),
    ("FROM exposed_by_step() WHERE step <> 1", {"steps": STEPS, "breakdown": CELLS},
     [("r", 0, 0, 100, 20, 20.0, "rdma_transfer"), ("r", 0, 2, 150, 70, 7000 / 150, "rdma_transfer")]),
    ("FROM rail_traffic()", {"rdma_messages": MESSAGES, "rdma_qps": QPS}, [("r", 0, "same_rail", 3, 4316, 100.0, 7)]),
    ("FROM evidence_shares()", {"breakdown": CELLS},
     [("r", "measured_nsys", 240, 24000 / 350), ("r", "inferred", 110, 11000 / 350)]),
    ("FROM nvtx_times(top := 1)",
     {"nvtx": [{"rank": 0, "kind": "push_pop", "text": text, "start_ns": a, "end_ns": b}
               for text, a, b in (("x", 0, 5), ("x", 5, 12), ("y", 0, 9), ("y", 20, None))]},
     [("r", 0, "x", 2, 12, 5, 7)]),
    ("FROM counter_growth()",
     {"counters": [{"node": "n", "device": "mlx5_0", "port": 1, "counter": name, "at_ns": at, "value": value}
                   for name, at, value in (("err", 0, 2.0), ("err", 9, 5.0), ("ok", 0, 1.0), ("ok", 9, 1.0))]},
     [("r", "n", "mlx5_0", 1, "err", 2, 2.0, 5.0, 3.0, 9)]),
    ("SELECT api, launch_ns, queued_ns FROM kernel_with_launch WHERE op_class = 'copy'",
     {"gpu_ops": OPS, "cuda_api": CALLS}, [("cudaMemcpy", 50, -45)]),
    ("SELECT step, counted, peer_rank, post_ns, flight_ns FROM message_with_step WHERE bytes = 100",
     {"rdma_messages": MESSAGES, "rdma_qps": QPS, "steps": STEPS}, [(0, True, 1, 2, 5)]),
    ("SELECT culprit_node, culprit_gpu_index, culprit_category, culprit_ns FROM wait_with_culprit",
     {"waits": [{"rank": 0, "step": 3, "culprit_rank": 1, "wait_ns": 40, "within_clock_error": False}], "ranks": RANKS,
      "delay_cost": [{"victim_rank": 0, "culprit_rank": 1, "step": 3, "category": c, "delay_ns": ns, "hop": 0}
                     for c, ns in (("memcpy", 10), ("compute", 30))]},
     [("n1", 1, "compute", 30)]),
    ("SELECT step, wall_ns, counted FROM step_walls", {"steps": STEPS[:1]}, [(0, 100, True)]),
    ("SELECT peer_qp, peer_rank, peer_class FROM queue_pair_peers", {"rdma_qps": QPS}, [(6, 1, "same_rail")]),
    ("SELECT step_of('r', 0, 99), step_of('r', 0, 199), step_of('r', 0, 500), step_of('x', 0, 99)", {"steps": STEPS},
     [(0, 1, None, None)]),
    ("SELECT exposed(run, rank, step) FROM steps ORDER BY step", {"steps": STEPS, "breakdown": CELLS},
     [(20,), (20,), (70,)]),
    ("SELECT fmt_ns(999), fmt_ns(1500), fmt_ns(-2500000), fmt_ns(3000000000), fmt_ns(NULL)", {},
     [("999 ns", "1.500 µs", "-2.500 ms", "3.000 s", None)]),
    (("SELECT alg_bandwidth(1000, 50), alg_bandwidth(1, 0), bus_bandwidth('AllReduce', 1000, 4, 50), "
     "bus_bandwidth('AllGather', 1000, 4, 50), bus_bandwidth('unknown', 1000, 4, 50)"), {},
     [(2e10, None, 3e10, 1.5e10, None)]),
    ("SELECT size_class(0), size_class(1), size_class(1023), size_class(1024)", {}, [(0, 1, 512, 1024)]),
    ("FROM percentile_table([3, 1, NULL, 2])", {},
     [(0.0, 1), (50.0, 2), (90.0, 3), (95.0, 3), (99.0, 3), (99.9, 3), (100.0, 3)]),
]  # fmt: skip


@pytest.mark.parametrize(("query", "tables", "expected"), CASES, ids=[case[0][:40] for case in CASES])
def test_a_query_gives_exactly_the_rows_that_follow_from_its_input(
    tmp_path: Path, query: str, tables: dict[str, Rows], expected: list[tuple[Any, ...]]
) -> None:
    with lake(tmp_path, **tables) as connection:
        found = connection.execute(query).fetchall()
    assert [tuple(pytest.approx(v) if isinstance(v, float) else v for v in row) for row in expected] == found


def test_every_question_runs_on_an_empty_lake_and_has_a_case(tmp_path: Path) -> None:
    with lake(tmp_path) as connection:
        found = {name: connection.execute(f"FROM {name}()").fetchall() for name in QUESTIONS}
    assert {key: [] for key in QUESTIONS} == found
    assert [name for name in QUESTIONS if not any(f"FROM {name}(" in query for query, _, _ in CASES)] == []


def test_a_question_can_be_asked_of_one_run(tmp_path: Path) -> None:
    with lake(tmp_path, steps=STEPS) as connection:
        found = [connection.execute(f"SELECT count(*) FROM step_times(in_run := '{r}')").fetchall() for r in ("r", "x")]
    assert found == [[(1,)], [(0,)]]


def test_the_categories_of_exposed_communication_are_those_of_the_model(tmp_path: Path) -> None:
    with lake(tmp_path) as connection:
        for category in CATEGORIES:
            found = connection.execute("SELECT is_exposed_comm($1)", [category.name]).fetchall()
            assert (category.name, category.comm) == (category.name, found[0][0])
