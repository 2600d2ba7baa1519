"""Detectors of host, proxy and SM causes: severities, what each names, and the confounders that it leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.attribution.build import attributed
from tests.attribution.build import rows as rows_of
from tests.attribution.test_findings_shares import WALL, Rows, weighed
from tests.attribution.test_network_account import kernel, stop_and_wait

MS = 1_000_000


def severities(code: str, shares: dict[str, float], **tables: Rows) -> list[str]:
    found = (
        weighed([code], shares, **tables).execute("SELECT severity FROM findings WHERE code = $1", [code]).fetchall()
    )
    return [row[0] for row in found]


def step(number: int, start_ns: int, end_ns: int, rank: int = 0, **more: Any) -> dict[str, Any]:
    return {"rank": rank, "step": number, "start_ns": start_ns, "end_ns": end_ns, "source": "nvtx", "complete": True,
            "outlier": False, **more}  # fmt: skip


# Control plane


@pytest.mark.parametrize(
    ("control", "transfer", "expected"),
    [
        (10, 5, ["critical"]),
        (9.9, 5, ["warning"]),
        (5, 20, ["warning"]),
        (4.9, 0, []),
        (5, 20.1, []),
    ],
    ids=["a tenth", "just less", "at both thresholds", "too short", "something else bounds communication"],
)
def test_the_control_plane_needs_a_share_of_the_step_and_of_communication(
    control: float, transfer: float, expected: list[str]
) -> None:
    shares = {"ctl_loop": control, "rdma_transfer": transfer, "wait_straggler": 40}
    assert severities("control_plane_bound", shares) == expected


@pytest.mark.parametrize(
    ("captures", "says"),
    [
        ([("ebpf_csv", "ok", 900)], "probe cost is subtracted"),
        ([("ebpf_csv", "ok", 900), ("ebpf_csv", "unusable", None)], "probe cost is subtracted"),
        ([("ebpf_csv", "ok", 900), ("nsys_sqlite", "ok", None)], "probe cost is subtracted"),
        ([("ebpf_csv", "ok", 900), ("perf_script", "ok", None)], "was not calibrated"),
        ([], "was not calibrated"),
    ],
    ids=["calibrated", "an unusable file says nothing", "other tools need none", "one tool without", "no capture"],
)
def test_the_cost_of_probes_is_a_confounder_unless_every_prober_was_calibrated(
    captures: Sequence[tuple[str, str, int | None]], says: str
) -> None:
    listed = [{"name": str(i), "kind": k, "status": s, "probe_cost_ns": c} for i, (k, s, c) in enumerate(captures)]
    found = weighed(["control_plane_bound"], {"ctl_post": 8}, captures=listed)
    ((confounders,),) = found.execute("SELECT confounders FROM findings").fetchall()
    assert says in confounders


def test_the_control_plane_carries_the_evidence_and_the_leaf_of_most_of_its_time() -> None:
    breakdown = [
        {"rank": 0, "step": 0, "category": "ctl_notify", "evidence": "measured_profiler", "attributed_ns": 6 * MS},
        {"rank": 0, "step": 0, "category": "ctl_fetch", "evidence": "modelled", "attributed_ns": 3 * MS},
    ]
    found = weighed(["control_plane_bound"], {}, breakdown=breakdown)
    ((evidence, value, text),) = found.execute("SELECT evidence, value, text FROM findings").fetchall()
    assert (evidence, value, "most of it ctl_notify" in text) == ("measured_profiler", 9, True)


# Launches and stalls


def idle(*gaps: tuple[int, str], rank: int = 0, start_ns: int = 0) -> list[dict[str, Any]]:
    """Idle segments of these lengths (ns) and categories, each after 1 ns of compute; '+' before one joins it to the last."""
    rows: list[dict[str, Any]] = []
    at = start_ns
    for length, category in gaps:
        at += 0 if category.startswith("+") else 1
        rows.append({"rank": rank, "step": 0, "category": category.lstrip("+"), "start_ns": at, "end_ns": at + length})
        at += length
    return rows


@pytest.mark.parametrize(
    ("gaps", "launch", "stall"),
    [
        ([(250_000, "host_launch")] * 20, ["warning"], []),
        ([(250_000, "host_launch")] * 19, [], []),
        ([(250_000, "host_launch")] * 80, ["critical"], []),
        ([(999_999, "host_launch")] * 6, ["warning"], []),
        ([(MS, "host_launch")] * 2, [], ["warning"]),
        ([(MS, "host_launch")], [], []),
        ([(20 * MS, "host_other")], [], ["critical"]),
        ([(19 * MS, "host_other")], [], ["warning"]),
        ([(600_000, "host_launch"), (600_000, "+host_other")] * 2, [], ["warning"]),
        ([(250_000, "host_sync")] * 80 + [(20 * MS, "host_sync")], [], []),
        ([(250_000, "gpu_dependency")] * 80, [], []),
        ([(20 * MS, "host_data"), (5 * MS, "+host_launch")], [], []),
    ],
    ids=[
        "a twentieth in short gaps", "just less", "a fifth", "just under 1 ms", "two of 1 ms", "one of 1 ms",
        "a fifth in one gap", "just less than a fifth", "adjoining pieces are one gap", "synchronising calls",
        "launched in time", "mostly data",
    ],
)  # fmt: skip
def test_short_gaps_are_slow_launches_and_long_ones_stalls(
    gaps: list[tuple[int, str]], launch: list[str], stall: list[str]
) -> None:
    found = weighed(["launch_bound", "host_stall"], {"compute": 90}, segments=idle(*gaps))
    rows = found.execute("SELECT code, severity FROM findings ORDER BY code DESC").fetchall()
    assert rows == [
        *(("launch_bound", severity) for severity in launch),
        *(("host_stall", severity) for severity in stall),
    ]


def test_a_stall_is_told_of_one_rank_only() -> None:
    """The longest gap of all is another rank's: it is not put down to the rank that stalls most."""
    segments = [*idle(*[(2 * MS, "host_launch")] * 5), *idle((9 * MS, "host_other"), rank=1)]
    found = weighed(["host_stall"], {"compute": 90}, ranks=2, segments=segments)
    ((rank, value, text),) = found.execute("SELECT rank, value, text FROM findings").fetchall()
    assert (rank, value) == (0, 10)
    assert text == (
        "The host stalls: rank 0 launches nothing for 1 ms or longer 5 times in 1 steps, 10.0 ms in all, "
        "longest 2.0 ms in step 0."
    )


def test_a_rank_that_waits_for_data_is_named_with_a_step_of_its_own() -> None:
    """Rank 0 waits most in all, rank 1 longest at once, in another step."""
    waited = {(0, 0): 10, (0, 1): 10, (1, 0): 0, (1, 1): 15}
    steps = [step(k, k * WALL, (k + 1) * WALL, rank) for rank, k in waited]
    breakdown = [
        {"rank": rank, "step": k, "category": "host_data", "attributed_ns": ms * MS} for (rank, k), ms in waited.items()
    ]
    found = weighed(["data_bound"], {}, ranks=2, steps=steps, breakdown=breakdown)
    ((rank, number, text),) = found.execute("SELECT rank, step, text FROM findings").fetchall()
    assert (rank, number) == (0, 0)
    assert "longest 15.0 ms in step 1 of rank 1" in text


def test_idle_time_outside_counted_steps_is_no_stall() -> None:
    segments = [{**row, "step": 7} for row in idle((50 * MS, "host_launch"))]
    steps = [step(0, 0, WALL), step(7, WALL, 2 * WALL, outlier=True)]
    assert severities("host_stall", {"compute": 90}, segments=segments, steps=steps) == []


@pytest.mark.parametrize(
    ("text", "is_gc"),
    [
        ("gc.collect", True), ("GC", True), ("Python GC", True), ("gc generation 2", True), ("garbage collection", True),
        ("gcn_layer", False), ("logc", False), ("validate", False),
    ],
)  # fmt: skip
def test_a_stall_whose_ranges_say_so_is_garbage_collection(text: str, is_gc: bool) -> None:
    """Of a stall of 20 ms three quarters lie in the range; what lies before it is not the stall's."""
    ranges = [{"rank": 0, "tid": 1, "kind": "push_pop", "start_ns": -5 * MS, "end_ns": 15 * MS + 1, "text": text}]
    found = weighed(["host_stall"], {"compute": 80}, segments=idle((20 * MS, "host_launch")), nvtx=ranges)
    ((told, following),) = found.execute("SELECT text, next FROM findings").fetchall()
    assert (told.endswith("; 15.0 ms of it in garbage collection."), "gc.freeze()" in following) == (is_gc, is_gc)


@pytest.mark.parametrize(("state", "preempted"), [("runnable", True), ("blocked", False), ("running", False)])
def test_a_stall_of_a_launching_thread_without_a_core_says_so(state: str, preempted: bool) -> None:
    """Off the CPU for 12 of 20 ms, and after them; another thread of the process has nothing to do with it."""
    slices = [(9, 0, 12 * MS + 1), (9, 30 * MS, 40 * MS), (10, 0, 20 * MS)]
    found = weighed(
        ["host_stall"],
        {"compute": 80},
        segments=idle((20 * MS, "host_other")),
        gpu_ops=[{"rank": 0, "start_ns": 0, "end_ns": 1, "launch_tid": 9}],
        thread_states=[
            {"node": "n0", "pid": 0, "tid": tid, "start_ns": start, "end_ns": end, "state": state}
            for tid, start, end in slices
        ],
    )
    ((told, following),) = found.execute("SELECT text, next FROM findings").fetchall()
    assert told.endswith("; 12.0 ms of it runnable without a core.") == preempted
    assert following.startswith("give the launching thread a core") == preempted


# Proxies


def waiting(start_ns: int, length: int, tid: int = 9, state: str = "runnable", other: int | None = 5) -> dict[str, Any]:
    return {"node": "n0", "pid": 0, "tid": tid, "start_ns": start_ns, "end_ns": start_ns + length, "state": state,
            "other_tid": other, "name": f"t{tid}"}  # fmt: skip


POSTS = [{"node": "n0", "rank": 0, "pid": 0, "tid": tid, "qp": 1, "enter_ns": 1} for tid in (9, 10)]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([waiting(0, 10 * MS)], ["critical"]),
        ([waiting(0, 10 * MS - 1)], ["warning"]),
        ([waiting(0, 2 * MS)], ["warning"]),
        ([waiting(0, 2 * MS - 1)], []),
        ([waiting(200_000 * i, 100_000) for i in range(20)], ["warning"]),
        ([waiting(200_000 * i, 99_999) for i in range(400)], []),
        ([waiting(0, 50 * MS, state="blocked")], []),
        ([waiting(0, 50 * MS, tid=77)], []),
        ([waiting(WALL + 1, 50 * MS)], []),
        ([waiting(WALL - MS, 50 * MS)], []),
        ([waiting(-50 * MS, 52 * MS)], ["warning"]),
        ([waiting(0, 1_500_000), waiting(0, 1_500_000, tid=10)], []),
    ],
    ids=[
        "a tenth", "just less than a tenth", "a fiftieth", "just less than a fiftieth", "many slices of 0.1 ms",
        "interrupts and ticks", "blocked, not starved", "no proxy", "after the steps", "mostly after the steps",
        "mostly before the steps", "two proxies at once",
    ],
)  # fmt: skip
def test_a_proxy_starves_while_it_is_runnable_inside_counted_steps(states: Rows, expected: list[str]) -> None:
    assert severities("proxy_starved", {"compute": 90}, thread_states=states, rdma_posts=POSTS) == expected


def test_a_starved_proxy_is_named_with_the_thread_that_took_its_core() -> None:
    states = [
        waiting(0, 3 * MS, other=5),
        waiting(4 * MS, MS, other=6),
        waiting(0, 2 * MS, tid=10, other=6),
        waiting(0, 1, tid=5, state="running", other=None),
    ]
    found = weighed(["proxy_starved"], {"compute": 90}, thread_states=states, rdma_posts=POSTS)
    ((value, text),) = found.execute("SELECT value, text FROM findings").fetchall()
    assert (value, text) == (
        4,
        "The proxy thread 9 of rank 0 lost its core 2 times for 4.0 ms in all, mostly to thread 5 (t5) (75 %).",
    )


def test_a_slice_across_steps_counts_in_each_counted_one() -> None:
    steps = [step(0, 0, 40 * MS), step(1, 40 * MS, 60 * MS, outlier=True), step(2, 60 * MS, WALL)]
    breakdown = [{"rank": 0, "step": k, "category": "compute", "attributed_ns": 40 * MS} for k in (0, 2)]
    states = [waiting(36 * MS, 28 * MS)]
    found = weighed(["proxy_starved"], {}, steps=steps, breakdown=breakdown, thread_states=states, rdma_posts=POSTS)
    assert found.execute("SELECT value FROM findings").fetchall() == [(10,)]


# SMs


def kernels(
    n: int, duration: int, at: int, name: str = "gemm", rank: int = 0, every: int = MS, op_class: str = "compute"
) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank,
            "start_ns": at + i * every,
            "end_ns": at + i * every + duration,
            "op_class": op_class,
            "name": name,
        }
        for i in range(n)
    ]


def comm(start_ns: int, end_ns: int, rank: int = 0) -> dict[str, Any]:
    return {"rank": rank, "start_ns": start_ns, "end_ns": end_ns, "op_class": "comm", "name": "ncclDevKernel"}


ALONE, BESIDE = 0, 50 * MS
OVERLAP = comm(BESIDE, BESIDE + 30 * MS)


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ([*kernels(8, 500_000, ALONE), *kernels(8, 750_000, BESIDE), OVERLAP], ["warning"]),
        ([*kernels(8, 500_000, ALONE), *kernels(8, 740_000, BESIDE), OVERLAP], []),
        ([*kernels(30, 900_000, ALONE), *kernels(30, 980_000, BESIDE), OVERLAP], []),
        ([*kernels(30, 900_000, ALONE), *kernels(30, 990_000, BESIDE), OVERLAP], ["warning"]),
        ([*kernels(7, 500_000, ALONE), *kernels(8, 900_000, BESIDE), OVERLAP], []),
        ([*kernels(8, 500_000, ALONE), *kernels(7, 900_000, BESIDE), OVERLAP], []),
        ([*kernels(8, 500_000, ALONE), *kernels(8, 900_000, BESIDE, "other"), OVERLAP], []),
        ([*kernels(8, 500_000, ALONE), *kernels(8, 900_000, BESIDE), comm(BESIDE, BESIDE + 30 * MS, rank=1)], []),
        ([*kernels(8, 500_000, ALONE, op_class="copy"), *kernels(8, 900_000, BESIDE, op_class="copy"), OVERLAP], []),
        ([*kernels(8, 500_000, ALONE), *kernels(8, 900_000, BESIDE),
          *kernels(8, 900_000, ALONE, "b"), *kernels(8, 500_000, BESIDE, "b"), OVERLAP], []),
        ([*kernels(8, 500_000, ALONE), *kernels(8, 900_000, BESIDE), OVERLAP, comm(BESIDE + 1, BESIDE + 2)], ["warning"]),
        ([*kernels(8, 500_000, ALONE), *kernels(8, 900_000, BESIDE)], []),
        ([*kernels(8, 500_000, ALONE), *kernels(8, 900_000, WALL), comm(WALL, 2 * WALL)], []),
    ],
    ids=[
        "half as long again, 2 % of the step", "too short", "below 1.1 times", "1.1 times", "too few alone",
        "too few beside", "kernels of other names", "another rank's communication", "copies",
        "one slower, one faster: other shapes", "a short operation inside a long one", "no communication",
        "beside it only after the counted steps",
    ],
)  # fmt: skip
def test_sms_are_taxed_where_kernels_of_one_name_are_slower_beside_communication(
    ops: Rows, expected: list[str]
) -> None:
    assert severities("sm_tax", {"compute": 90}, gpu_ops=ops) == expected


# Stop-and-wait


def test_a_sender_that_was_woken_for_its_next_message_did_not_wait_for_the_last(tmp_path: Path) -> None:
    """Post at 0, completion seen at 8 300, next post at 9 300 ns: only a wake-up between the last two excuses the gap.

    Rank 0's thread is woken there, rank 1's while its message is in flight.
    """
    period, n = 9_300, 20
    posts: list[dict[str, Any]] = []
    completions: list[dict[str, Any]] = []
    states: list[dict[str, Any]] = []
    for rank, woken in ((0, 8_800), (1, 5_000)):
        who = {"pid": rank + 1, "tid": rank + 9}
        for at in range(0, n * period, period):
            edges = [(0, 4_000, "running"), (4_000, woken, "blocked"), (woken, period, "running")]
            states += [{**who, "start_ns": at + a, "end_ns": at + b, "state": state} for a, b, state in edges]
            on = {**who, "rank": rank, "nic": f"mlx5_{rank}", "qp": rank, "wr_id": at}
            posts.append({**on, "enter_ns": at, "exit_ns": at + 300, "bytes": 4_096})
            completions.append({**on, "seen_ns": at + 8_300})
    run = attributed(
        tmp_path,
        {"network": {"beta_bytes_per_s": 50_000_000_000}},
        gpu_ops=[{**kernel(0, n * period), "rank": rank} for rank in (0, 1)],
        nvtx=[{"rank": rank, "start_ns": 0, "end_ns": n * period, "text": "step_0"} for rank in (0, 1)],
        rdma_posts=posts,
        rdma_completions=completions,
        thread_states=states,
    )
    chains = "SELECT rank, count(*) FILTER (chain) FROM rdma_messages GROUP BY rank ORDER BY rank"
    assert rows_of(run, chains) == [(0, 0), (1, n)]
    ((severity, rank, text),) = rows_of(run, "SELECT severity, rank, text FROM findings WHERE code = 'blocking_rtt'")
    assert (severity, rank, "20 messages on 1 ranks" in text) == ("critical", 1, True)


@pytest.mark.parametrize(
    ("rtt0_ns", "given", "says"),
    [
        (
            MS,
            None,
            "base round trips of 1000.0 µs take 10.0 % of the step (most on rank 0), 18.0 ms in all could be pipelined.",
        ),
        (
            None,
            MS // 2,
            "base round trips of 500.0 µs take 10.0 % of the step (most on rank 0), 9.0 ms in all could be pipelined.",
        ),
        (None, None, "base round trips take 10.0 % of the step (most on rank 0)."),
    ],
    ids=["fitted", "signals without a payload have no fit", "not known"],
)
def test_what_could_be_pipelined_is_counted_step_by_step(rtt0_ns: int | None, given: int | None, says: str) -> None:
    """Two chains of ten messages: nine round trips each, as the first of a step follows nothing in it."""
    messages = [
        {
            "rank": 0,
            "node": "n0",
            "pid": 0,
            "nic": "mlx5_0",
            "qp": 1,
            "bytes": 8,
            "enter_ns": i,
            "chain": True,
            "step": i // 10,
        }
        for i in range(20)
    ]
    fits = [{"node": "n0", "nic": "mlx5_0", "rtt0_ns": rtt0_ns}]
    told = [{"clock_error_ns": 0, "rtt0_ns": given}]
    found = weighed(["blocking_rtt"], {"blocking_rtt": 10}, rdma_messages=messages, fits=fits, run_config=told)
    ((severity, text),) = found.execute("SELECT severity, text FROM findings").fetchall()
    assert (severity, text.split("seen; ")[1]) == ("critical", says)


@pytest.mark.parametrize("queue_pairs", [1, 5, 20])
def test_a_chain_over_many_queue_pairs_could_be_pipelined_like_one(tmp_path: Path, queue_pairs: int) -> None:
    """Of 20 round trips of 500 µs all but the first, though a queue pair has as few as one of them."""
    posts, completions = stop_and_wait(20, 300, 500_000, 4_096)
    for index, (post, done) in enumerate(zip(posts, completions, strict=True)):
        post["qp"] = done["qp"] = 1 + index % queue_pairs
    end = completions[-1]["seen_ns"]
    run = attributed(
        tmp_path,
        {"network": {"beta_bytes_per_s": 50_000_000_000}},
        gpu_ops=[kernel(0, end)],
        nvtx=[{"start_ns": 0, "end_ns": end, "text": "step_0"}],
        rdma_posts=posts,
        rdma_completions=completions,
        thread_states=[{"tid": 9, "start_ns": 0, "end_ns": end, "state": "running"}],
    )
    ((text,),) = rows_of(run, "SELECT text FROM findings WHERE code = 'blocking_rtt'")
    assert "base round trips of 499.9 µs" in text
    assert "9.5 ms in all could be pipelined" in text


@pytest.mark.parametrize(
    ("code", "category", "share", "expected"),
    [
        ("data_bound", "host_data", 10, ["critical"]),
        ("data_bound", "host_data", 9.9, ["warning"]),
        ("host_sync_bound", "host_sync", 60, ["warning"]),
    ],
)
def test_severity_follows_the_share(code: str, category: str, share: float, expected: list[str]) -> None:
    assert severities(code, {category: share}) == expected
