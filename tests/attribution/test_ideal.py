"""T*: the run on a network that takes no time, and the two halves of communication efficiency that follow from it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.attribution.ideal import play
from pipeline.model.categories import CATEGORIES
from tests.attribution.build import attributed, rows
from tests.attribution.rdma import connect, run

Row = dict[str, Any]
ALL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def kernels(rank: int, *spans: tuple[int, int], comm: tuple[tuple[int, int], ...]) -> list[Row]:
    own = [{"rank": rank, "start_ns": a, "end_ns": b} for a, b in spans]
    both = [
        {"rank": rank, "start_ns": a, "end_ns": b, "op_class": "comm", "comm_op": "AllReduce", "name": ALL, "stream": 8}
        for a, b in comm
    ]
    return own + both


def facts(folder: Path, gpu_ops: list[Row], config: Row | None = None) -> dict[str, str]:
    ranks = sorted({row["rank"] for row in gpu_ops})
    steps = [{"rank": rank, "start_ns": 0, "end_ns": 200, "text": "step_0"} for rank in ranks]
    made = attributed(folder, config, gpu_ops=gpu_ops, nvtx=steps)
    return dict(rows(made, "SELECT name, value FROM run_facts WHERE starts_with(name, 'pop_')"))


# Rank 0 works 100 and 50, rank 1 works 60 and 80; the collective between takes 20 after the last arrival.
TWO = [
    *kernels(0, (0, 100), (120, 170), comm=((100, 120),)),
    *kernels(1, (0, 60), (120, 200), comm=((60, 120),)),
]


def test_ranks_wait_for_each_other_even_where_the_network_takes_nothing(tmp_path: Path) -> None:
    """Both go on at 100: rank 1 ends at 180. The longest work is 150, so serialisation costs 150 / 180."""
    found = facts(tmp_path, TWO)
    assert found["pop_ideal_network_ns"] == "180"
    assert (found["pop_serialisation_efficiency"], found["pop_transfer_efficiency"]) == ("0.833333", "0.900000")
    product = float(found["pop_serialisation_efficiency"]) * float(found["pop_transfer_efficiency"])
    assert product == pytest.approx(float(found["pop_communication_efficiency"]), abs=1e-6)
    # No message was seen: that the wire or the doorbell cost nothing would be a claim.
    assert found["pop_transfer_factors_absent"] == "absent"
    assert [name for name in found if name.startswith("pop_transfer_factor_")] == []


def test_communication_behind_compute_costs_nothing_and_is_waited_for_only_where_it_shows(tmp_path: Path) -> None:
    """Rank 1 computes on its other stream until 110 and is held up for 10 more; without a network for none."""
    hidden = [
        *kernels(0, (0, 100), (120, 200), comm=((100, 120),)),
        *kernels(1, (0, 110), (120, 200), comm=((60, 120),)),
    ]
    assert facts(tmp_path, hidden)["pop_ideal_network_ns"] == "190"


@pytest.mark.parametrize(
    ("gpu_ops", "config", "why"),
    [
        (TWO[:3], None, "nor serialisation: one rank waits for nobody"),
        (TWO, {"ranks": {"expected": 3}}, "nor serialisation: 1 ranks have no step that counts"),
        ([*TWO, *kernels(0, comm=((180, 190),))], None, "nor serialisation: of "),
    ],
    ids=["one rank", "a rank without a capture", "a collective that matches nothing"],
)
def test_what_can_not_be_told_is_left_out_by_name(
    tmp_path: Path, gpu_ops: list[Row], config: Row | None, why: str
) -> None:
    ranks = sorted({row["rank"] for row in gpu_ops})
    steps = [{"rank": rank, "start_ns": 0, "end_ns": 200, "text": "step_0"} for rank in ranks]
    made = attributed(tmp_path, config, gpu_ops=gpu_ops, nvtx=steps)
    found = dict(rows(made, "SELECT name, text FROM run_facts WHERE starts_with(name, 'pop_')"))
    assert found["pop_transfer_absent"].startswith(why)
    assert "pop_transfer_efficiency" not in found


@settings(deadline=None)
@given(st.data(), st.integers(2, 4), st.integers(1, 5))
def test_no_rank_is_ever_later_than_it_was_and_none_leaves_before_the_last_arrives(
    data: st.DataObject, ranks: int, collectives: int
) -> None:
    """Against the plain recursion, on runs whose network takes up to 9 after the last arrival."""
    small = st.integers(0, 9)
    table: list[tuple[int, int, int, int]] = []
    now, own = [0] * ranks, [0] * ranks
    ideal, expected = [0] * ranks, []
    for place in range(collectives):
        for rank in range(ranks):
            work = data.draw(small)
            now[rank], own[rank], ideal[rank] = now[rank] + work, own[rank] + work, ideal[rank] + work
        taken, last, first = data.draw(small), max(now), max(ideal)
        for rank in range(ranks):
            table.append((rank, place, own[rank], own[rank]))
            now[rank], ideal[rank] = last + taken, first
            expected.append(first)
            assert ideal[rank] <= now[rank]
    columns = np.array(table, np.int64).T
    assert play(*columns, np.zeros(ranks, np.int64)).tolist() == expected
    # Several runs of the same collectives at once are each of them alone.
    rank, place, start, end = columns
    slower = np.stack([start, 2 * start])
    both = play(rank, place, slower, np.stack([end, 2 * end]), np.zeros((2, ranks), np.int64))
    assert both.tolist() == [expected, [2 * at for at in expected]]


COMM = ("rdma_transfer", "blocking_rtt", "ctl_cpu", "net_latency", "wait_straggler", "comm_unattributed")
LEAVES = ("ctl_loop", "ctl_schedule", "ctl_post")
GIVEN = (
    (),
    ("rdma_transfer",),
    ("rdma_transfer", "blocking_rtt"),
    ("rdma_transfer", "blocking_rtt", "ctl_loop", "ctl_schedule"),
    ("rdma_transfer", "blocking_rtt", "ctl_loop", "ctl_schedule", "ctl_post"),
)
"""What a rank's own time holds at each level."""


@settings(deadline=None)
@given(st.data())
def test_own_time_is_what_is_left_when_the_rest_of_exposed_communication_is_taken_out(data: st.DataObject) -> None:
    """Against going through the segments one by one. ctl_cpu is divided as its step says, to the ns below."""
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=2, max_size=12))
    edges = [0, *np.cumsum(lengths).tolist()]
    split = data.draw(st.integers(1, len(lengths) - 1))
    names = [data.draw(st.sampled_from(("compute", "host_launch", *COMM))) for _ in lengths]
    segments = [
        {"rank": 0, "step": int(n >= split), "start_ns": a, "end_ns": b, "category": name, "evidence": "inferred"}
        for n, (a, b, name) in enumerate(zip(edges[:-1], edges[1:], names, strict=True))
    ]
    breakdown: dict[tuple[int, str], int] = {}
    for row in segments:
        key = (row["step"], row["category"])
        breakdown[key] = breakdown.get(key, 0) + row["end_ns"] - row["start_ns"]
    for step in (0, 1):
        whole = breakdown.pop((step, "ctl_cpu"), 0)
        cuts = sorted(data.draw(st.lists(st.integers(0, whole), min_size=2, max_size=2)))
        for leaf, a, b in zip(LEAVES, (0, *cuts), (*cuts, whole), strict=True):
            breakdown[step, leaf] = b - a
    connection = connect(
        steps=[{"step": s, "start_ns": a, "end_ns": b} for s, a, b in ((0, 0, edges[split]), (1, edges[split], edges[-1]))],
        _operations=[{"op_id": n, "start_ns": a, "end_ns": b} for n, (a, b) in enumerate(pairwise(edges))],
    )  # fmt: skip
    connection.execute(
        "CREATE TABLE _participants AS SELECT op_id FROM _operations WHERE op_id % 2 = 0;"
        "CREATE TABLE categories (category VARCHAR, comm BOOLEAN, leaf_of VARCHAR, given_back INTEGER);"
        "CREATE TABLE segments (rank BIGINT, step BIGINT, start_ns BIGINT, end_ns BIGINT, category VARCHAR);"
        "CREATE TABLE breakdown (step BIGINT, category VARCHAR, attributed_ns BIGINT)"
    )
    connection.execute(f"CREATE TYPE category_name AS ENUM ({', '.join(repr(c.name) for c in CATEGORIES)})")
    for c in CATEGORIES:
        levels = [level for level, given in enumerate(GIVEN) if c.name in given]
        connection.execute(
            "INSERT INTO categories VALUES (?, ?, ?, ?)", [c.name, c.comm, c.leaf_of, min(levels, default=None)]
        )
    for row in segments:
        connection.execute("INSERT INTO segments VALUES (?, ?, ?, ?, ?)", list(row.values())[:5])
    for (step, name), ns in breakdown.items():
        connection.execute("INSERT INTO breakdown VALUES (?, ?, ?)", [step, name, ns])
    run(connection, ("_local_times",))

    def own(at: int, level: int) -> int:
        kept = at
        for row in segments:
            a, b, step, name = row["start_ns"], row["end_ns"], row["step"], row["category"]
            if name not in COMM or at <= a:
                continue
            taken = b - a if name not in GIVEN[level] else 0
            if name == "ctl_cpu":
                leaves = {leaf: breakdown[step, leaf] for leaf in LEAVES}
                given = sum(ns for leaf, ns in leaves.items() if leaf in GIVEN[level])
                taken = b - a - (b - a) * given // sum(leaves.values())
            kept -= taken * (min(at, b) - a) // (b - a)
        return kept

    found = connection.execute(
        "SELECT op_id, step, level, start_ns, end_ns, local_start_ns, local_end_ns FROM _local_times"
    ).fetchall()
    assert len(found) == 5 * (2 + (len(lengths) + 1) // 2)
    for op_id, step, level, start, end, local_start, local_end in found:
        assert (local_start, local_end) == (own(start, level), own(end, level)), (op_id, step, level)
