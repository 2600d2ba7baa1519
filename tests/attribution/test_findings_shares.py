"""Detectors that weigh time against step time: each hits at its threshold, not below it, and not for a confounder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pytest

from pipeline.attribution.findings import make_findings
from pipeline.model import categories, library
from tests.attribution.plain import plain, run

WALL = 100_000_000
Rows = Sequence[Mapping[str, Any]]


def weighed(
    wanted: Sequence[str],
    shares: Mapping[str, float],
    ranks: int = 1,
    *,
    one_node: bool = False,
    known: Rows | None = None,
    **tables: Rows,
) -> duckdb.DuckDBPyConnection:
    """`findings` of ranks with one step of 100 ms, each with these categories in percent of it; known: the table `ranks`."""
    steps = [
        {"rank": r, "step": 0, "start_ns": 0, "end_ns": WALL, "source": "nvtx", "complete": True, "outlier": False}
        for r in range(ranks)
    ]
    breakdown = [
        {"rank": r, "step": 0, "category": category, "evidence": "inferred", "attributed_ns": round(share * WALL / 100)}
        for r in range(ranks)
        for category, share in shares.items()
    ]
    if known is None:
        known = [{"rank": r, "node": "n0" if one_node else f"n{r}", "pid": r} for r in range(ranks)]
    connection = plain(**{"steps": steps, "breakdown": breakdown, "ranks": known, **tables})
    run(connection, "_counted_steps")
    connection.execute("CREATE TABLE categories (category VARCHAR, comm BOOLEAN)")
    known_categories = [value for category in categories.CATEGORIES for value in (category.name, category.comm)]
    connection.execute(
        f"INSERT INTO categories VALUES {', '.join(['(?, ?)'] * len(categories.CATEGORIES))}", known_categories
    )
    make_findings(connection, wanted)
    return connection


def codes(wanted: Sequence[str], shares: Mapping[str, float], ranks: int = 1, **tables: Rows) -> list[str]:
    """Codes of these detectors that `weighed` finds."""
    found = weighed(wanted, shares, ranks, **tables).execute("SELECT code FROM findings ORDER BY code").fetchall()
    return [row[0] for row in found]


@pytest.mark.parametrize(("share", "hits"), [(5.1, ["host_sync_bound"]), (4.9, [])])
def test_host_synchronisation_counts_from_a_twentieth_of_the_step(share: float, hits: list[str]) -> None:
    assert codes(["host_sync_bound"], {"host_sync": share, "compute": 100 - share}) == hits


@pytest.mark.parametrize(("share", "hits"), [(2.1, ["data_bound"]), (1.9, [])])
def test_data_counts_from_a_fiftieth_of_the_step(share: float, hits: list[str]) -> None:
    assert codes(["data_bound"], {"host_data": share, "compute": 100 - share}) == hits


@pytest.mark.parametrize("code", ["host_sync_bound", "data_bound", "control_plane_bound"])
def test_of_equal_ranks_the_lowest_is_named_whatever_their_order(code: str) -> None:
    shares = {"host_sync": 20, "host_data": 20, "ctl_loop": 20, "ctl_post": 20}
    backwards = [
        {"rank": r, "step": 0, "category": category, "evidence": "inferred", "attributed_ns": round(share * WALL / 100)}
        for r in (3, 1, 0, 2)
        for category, share in shares.items()
    ]
    found = weighed([code], shares, 4, breakdown=backwards).execute("SELECT rank, step FROM findings").fetchall()
    assert [rank for rank, _ in found] == [0]


def test_no_detector_picks_one_of_equals_by_chance() -> None:
    """arg_max and arg_min of a single key take any of several rows that have it."""
    single = re.compile(r"arg_m(?:ax|in)\([\w.]+, (?!\()[^()]*\)")
    files = [path for path in library.paths().values() if path.parent.name == "findings"]
    assert {path.name: found for path in files if (found := single.findall(path.read_text(encoding="utf-8")))} == {}


def flights(excess_by_peer: Sequence[int], queue_pairs: int) -> dict[str, Rows]:
    """One message for each queue pair, receivers in turn; each has its receiver's excess, ns."""
    peers = [1 + qp % len(excess_by_peer) for qp in range(queue_pairs)]
    return {
        "fits": [{"node": "n0", "nic": "mlx5_0", "rtt0_ns": 3_000}],
        "rdma_qps": [{"node": "n0", "pid": 0, "qp": qp, "peer_rank": peer} for qp, peer in enumerate(peers)],
        "rdma_messages": [
            {"rank": 0, "node": "n0", "pid": 0, "nic": "mlx5_0", "qp": qp, "bytes": 4096, "enter_ns": qp,
             "service_end_ns": 100, "complete_ns": 3_100 + excess_by_peer[peer - 1]}
            for qp, peer in enumerate(peers)
        ],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("excess", "queue_pairs", "share", "hits"),
    [
        ([9_000, 0, 0], 12, 5, ["incast"]),
        ([9_000, 0, 0], 12, 1.9, []),
        ([9_000, 0, 0], 129, 5, ["incast"]),
        ([9_000, 9_000, 9_000], 129, 5, ["qp_thrash"]),
        ([9_000, 9_000, 9_000], 126, 5, []),
        ([9_000, 9_000, 9_000], 129, 1.9, []),
    ],
    ids=[
        "one receiver",
        "too short",
        "one receiver, many pairs",
        "many pairs, even",
        "too few pairs",
        "even but short",
    ],
)
def test_excess_is_incast_at_one_receiver_and_queue_pairs_where_it_is_even(
    excess: list[int], queue_pairs: int, share: float, hits: list[str]
) -> None:
    found = codes(["incast", "qp_thrash"], {"net_excess": share, "compute": 95}, **flights(excess, queue_pairs))
    assert found == hits


def received(excess: Mapping[int, tuple[int, int]], nics: Mapping[int, str]) -> dict[str, Rows]:
    """Messages of rank 0 to these receivers, (how many, excess ns of each), a queue pair each; receivers' NICs as node/device."""
    numbered = list(enumerate(peer for peer, (n, _) in excess.items() for _ in range(n)))
    known = [{"rank": 0, "node": "n0", "pid": 0, "nic": "mlx5_0"}]
    known += [
        {"rank": rank, "node": nic.split("/")[0], "pid": rank, "nic": nic.split("/")[1]} for rank, nic in nics.items()
    ]
    tables = flights([0], len(numbered))
    return {
        **tables,
        "known": known,
        "rdma_qps": [{"node": "n0", "pid": 0, "qp": qp, "peer_rank": peer} for qp, peer in numbered],
        "rdma_messages": [
            {**row, "complete_ns": 3_100 + excess[peer][1]}
            for row, (_, peer) in zip(tables["rdma_messages"], numbered, strict=True)
        ],
    }


SHARED = {1: "n1/a", 2: "n1/a", 3: "n1/b", 4: "n1/c", 5: "n1/d", 6: "n1/e"}
SHARED |= {rank + 6: nic.replace("n1", "n2") for rank, nic in SHARED.items()}
PAIRED = {rank: f"n{1 + (rank - 1) // 4}/{'ab'[(rank - 1) // 2 % 2]}" for rank in range(1, 9)}


@pytest.mark.parametrize(
    ("nics", "queued", "expected"),
    [
        (SHARED, {1: 5, 2: 5, 7: 5, 8: 5}, []),
        (SHARED, {1: 5, 2: 5}, [(1, "n1", "a", "rank 1 (2 ranks receive on its NIC): 100 % of all excess")]),
        (SHARED, {4: 20}, [(4, "n1", "c", "rank 4: 100 % of all excess")]),
        (SHARED, {1: 5, 2: 5, 7: 5, 8: 5, 4: 10}, [(4, "n1", "c", "rank 4: 33 % of all excess")]),
        (PAIRED, {5: 5, 6: 20}, [(6, "n2", "a", "rank 6 (2 ranks receive on its NIC): 100 % of all excess")]),
    ],
    ids=[
        "every NIC that two ranks share",
        "one of those",
        "another one",
        "another one beside those",
        "one of NICs that are all shared by two",
    ],
)
def test_ranks_that_share_a_nic_are_one_receiver_and_compared_with_their_like(
    nics: Mapping[int, str], queued: Mapping[int, int], expected: list[tuple[int, str, str, str]]
) -> None:
    """Two ranks that share a NIC queue there whoever sends: no receiver is to blame while every such NIC does."""
    excess = {rank: (queued.get(rank, 5), 9_000 if rank in queued else 0) for rank in nics}
    found = weighed(["incast", "qp_thrash"], {"net_excess": 5, "compute": 95}, **received(excess, nics))
    rows = found.execute("SELECT code, rank, node, nic, text FROM findings").fetchall()
    assert [("incast", *row[:3]) for row in expected] == [row[:4] for row in rows]
    assert all(text in row[4] for (*_, text), row in zip(expected, rows, strict=True))


@pytest.mark.parametrize(
    ("wait_ns", "within_clock_error", "hits"),
    [(10_000_000, False, ["straggler"]), (10_000_000, True, []), (3_000_000, False, [])],
    ids=["late", "within the clocks' error", "too short"],
)
def test_a_straggler_is_late_beyond_clock_error(wait_ns: int, within_clock_error: bool, hits: list[str]) -> None:
    wait = {"rank": 1, "step": 0, "kind": "straggler", "culprit_rank": 0, "start_ns": 0, "end_ns": wait_ns,
            "wait_ns": wait_ns, "within_clock_error": within_clock_error}  # fmt: skip
    assert codes(["straggler"], {"compute": 90}, ranks=2, waits=[wait]) == hits


@pytest.mark.parametrize(
    ("waits_ms", "names", "value"),
    [((30, 10), "rank 0 on n0 in 1 of 1 steps, 30.0 ms in all; meanwhile it was mostly in host_launch", 15.0),
     ((30, 25), "the ranks of n0 in 1 of 1 steps, 55.0 ms in all; meanwhile it was mostly in compute", 27.5)],
    ids=["one rank of the node", "both"],
)  # fmt: skip
def test_a_straggler_is_charged_with_the_waits_for_it_alone(
    waits_ms: tuple[int, int], names: str, value: float
) -> None:
    """Two ranks of one node wait for each other."""
    waits, cost = [], []
    for culprit, (ms, category) in enumerate(zip(waits_ms, ("host_launch", "compute"), strict=True)):
        ns = ms * 1_000_000
        row = {
            "rank": 1 - culprit,
            "step": 0,
            "kind": "straggler",
            "culprit_rank": culprit,
            "within_clock_error": False,
        }
        waits.append({**row, "start_ns": 0, "end_ns": ns, "wait_ns": ns})
        for name, part in (("compute", ns // 2), (category, ns // 2)):
            cost.append(
                {"victim_rank": 1 - culprit, "culprit_rank": culprit, "step": 0, "category": name, "delay_ns": part}
            )
    # Rank 0 was in host_launch for more than half of it.
    cost[0]["delay_ns"] //= 2
    found = weighed(["straggler"], {"compute": 60}, 2, one_node=True, waits=waits, delay_cost=cost)
    [(text, share)] = found.execute("SELECT text, value FROM findings").fetchall()
    assert names in text
    assert share == pytest.approx(value)


@pytest.mark.parametrize(("late_in", "says"), [(1, None), (2, "1 rank waits for rank 0 on n0 in 2 of 8 steps")])
def test_a_rank_that_is_late_once_is_no_straggler_though_it_is_last_by_a_little_in_every_step(
    late_in: int, says: str | None
) -> None:
    cells = [(rank, step) for rank in range(2) for step in range(8)]
    spans = [
        {"rank": r, "step": k, "start_ns": k * WALL, "end_ns": (k + 1) * WALL, "source": "nvtx", "complete": True,
         "outlier": False} for r, k in cells
    ]  # fmt: skip
    breakdown = [
        {"rank": r, "step": k, "category": "compute", "evidence": "inferred", "attributed_ns": WALL} for r, k in cells
    ]
    waits = [
        {"rank": 1, "step": k, "kind": "straggler", "culprit_rank": 0, "start_ns": 0, "end_ns": ns, "wait_ns": ns,
         "within_clock_error": False}
        for k in range(8) for ns in (1_000, 50_000_000 if k < late_in else 1_000)
    ]  # fmt: skip
    found = weighed(["straggler"], {}, ranks=2, steps=spans, breakdown=breakdown, waits=waits)
    rows = found.execute("SELECT text FROM findings").fetchall()
    assert [row[0][: len(says or "")] for row in rows] == ([says] if says else [])


@pytest.mark.parametrize(
    ("own", "says", "advice"),
    [
        ({"compute": 40, "ctl_schedule": 20}, "late by what it spends 20.0 points of its step more than the others in: ctl_schedule (its own network)", "its communication"),
        ({"compute": 60, "host_data": 1}, "mostly in compute (slower kernels or more work).", "kernel durations"),
        ({"compute": 40, "host_data": 20, "ctl_loop": 9}, "more than the others in: host_data (late data)", "data loader"),
        ({"compute": 45, "host_data": 7}, "mostly in compute (no category takes that much more of its step than of the others': uneven in turn,", "the ranks that wait"),
    ],
    ids=["its proxy", "its kernels", "its data", "nothing stands out"],
)  # fmt: skip
def test_a_straggler_is_late_by_what_it_spends_more_time_in_than_the_others(
    own: Mapping[str, float], says: str, advice: str
) -> None:
    """While the others wait it computes: that began late, and is no slower than theirs."""
    times = {0: own, 1: {"compute": 40}, 2: {"compute": 40, "ctl_loop": 1}}
    breakdown = [
        {"rank": r, "step": 0, "category": category, "evidence": "inferred", "attributed_ns": round(share * WALL / 100)}
        for r, shares in times.items()
        for category, share in shares.items()
    ]
    row = {"step": 0, "kind": "straggler", "culprit_rank": 0, "within_clock_error": False}
    waits = [{"rank": r, **row, "start_ns": 0, "end_ns": WALL // 5, "wait_ns": 30_000_000} for r in (1, 2)]
    cost = [
        {"victim_rank": r, "culprit_rank": 0, "step": 0, "category": "compute", "delay_ns": 30_000_000} for r in (1, 2)
    ]
    found = weighed(["straggler"], {}, 3, breakdown=breakdown, waits=waits, delay_cost=cost)
    [(rank, text, what_next)] = found.execute('SELECT rank, text, "next" FROM findings').fetchall()
    assert rank == 0
    assert says in text
    assert advice in what_next


@pytest.mark.parametrize(
    ("mates_wait", "names"),
    [(1, "the ranks of n0"), (9, "the ranks of n0"), (10, "rank 2 on n0"), (20, "rank 2 on n0")],
    ids=["the node is late", "most of it", "half as late", "one rank is late"],
)
def test_neighbours_that_hardly_wait_for_the_last_of_them_were_late_too(mates_wait: int, names: str) -> None:
    """Every wait goes to the last rank, though it came a moment after the others of its node."""
    known = [{"rank": r, "node": f"n{r // 3}", "pid": r} for r in range(6)]
    waits = [
        {"rank": r, "step": 0, "kind": "straggler", "culprit_rank": 2, "start_ns": 0, "end_ns": ms * 1_000_000,
         "wait_ns": ms * 1_000_000, "within_clock_error": False}
        for r, ms in enumerate((mates_wait, mates_wait, 0, 20, 20, 20)) if ms
    ]  # fmt: skip
    found = weighed(["straggler"], {"compute": 60}, 6, known=known, waits=waits)
    [(rank, node, text)] = found.execute("SELECT rank, node, text FROM findings").fetchall()
    assert (rank, node, f"wait for {names} in 1 of 1 steps" in text) == (2, "n0", True)


@pytest.mark.parametrize(("nodes", "named"), [(["n1"], "n1"), (["n0", "n1"], None)], ids=["one node", "every node"])
def test_a_fallback_names_a_node_where_no_other_fell_back(nodes: list[str], named: str | None) -> None:
    lines = [{"node": node, "source": "nvshmem", "code": "nvshmem_doorbell_by_cpu", "text": "CPU"} for node in nodes]
    found = weighed(["gpu_initiated_fallback"], {"compute": 90}, ranks=2, log_events=lines)
    assert found.execute("SELECT node FROM findings").fetchall() == [(named,)]


def copies(n: int, n_bytes: int = 4, graph: int | None = None) -> list[dict[str, Any]]:
    return [
        {"rank": 0, "start_ns": i, "end_ns": i + 1, "op_class": "copy", "copy_kind": "Device-to-Host", "bytes": n_bytes,
         "graph_id": graph}
        for i in range(n)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "idle", "hits"),
    [
        (copies(50), 6, ["tiny_sync_copies"]),
        (copies(49), 6, []),
        (copies(50, graph=1), 6, []),
        (copies(50, n_bytes=8_192), 6, []),
        (copies(50), 4, []),
    ],
    ids=["many", "one too few", "inside a graph", "not tiny", "the GPU stays busy"],
)
def test_tiny_copies_count_outside_graphs_where_the_gpu_idles(rows: Rows, idle: float, hits: list[str]) -> None:
    assert codes(["tiny_sync_copies"], {"host_sync": idle, "compute": 100 - idle}, gpu_ops=rows) == hits


@pytest.mark.parametrize(
    ("share", "chain", "hits"),
    [(2.1, True, ["blocking_rtt"]), (1.9, True, []), (2.1, False, [])],
    ids=["stop-and-wait", "too short", "sparse posts, no chain"],
)
def test_blocking_needs_chains_of_messages_and_a_share_of_the_step(share: float, chain: bool, hits: list[str]) -> None:
    tables = flights([0], 3)
    tables["rdma_messages"] = [{**row, "chain": chain} for row in tables["rdma_messages"]]
    assert codes(["blocking_rtt"], {"blocking_rtt": share, "compute": 95}, **tables) == hits
