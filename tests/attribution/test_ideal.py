"""T*: the run on a network that takes no time, and the two halves of communication efficiency that follow from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.attribution.ideal import play
from tests.attribution.build import attributed, rows

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
    run = attributed(folder, config, gpu_ops=gpu_ops, nvtx=steps)
    return dict(rows(run, "SELECT name, value FROM run_facts WHERE starts_with(name, 'pop_')"))


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
    run = attributed(tmp_path, config, gpu_ops=gpu_ops, nvtx=steps)
    found = dict(rows(run, "SELECT name, text FROM run_facts WHERE starts_with(name, 'pop_')"))
    assert found["pop_transfer_absent"].startswith(why)
    assert "pop_transfer_efficiency" not in found


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
