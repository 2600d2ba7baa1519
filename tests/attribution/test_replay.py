"""The replay: golden finish times, savings that don't add up, and agreement with attribution (I11)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from pipeline.attribution.phases import Message, attribute_phases
from pipeline.attribution.replay import Messages, replay, wire_ns

BETA = 50_000_000_000


def proxy(count: int, size: int) -> Messages:
    """G12: a notification of 1 000 before the first message, then 4 500 of CPU and 500 of fetch for each."""
    ready = np.zeros(count, np.int64)
    ready[0] = 1_000
    return Messages(np.full(count, size), ready, schedule_ns=3_000, wqe_ns=300, doorbell_ns=1_200, fetch_ns=500)


def finish(messages: Messages, outstanding: int | None = None, rtt0_ns: int = 3_000) -> int:
    return replay(messages, beta_bytes_per_s=BETA, rtt0_ns=rtt0_ns, outstanding=outstanding).finish_ns


@pytest.mark.parametrize(
    ("count", "size", "outstanding", "expected", "gigabytes_per_s"),
    [
        pytest.param(56, 114_688, None, 258_794, 24.82, id="G12"),
        pytest.param(56, 114_688, 1, 577_464, 11.12, id="G12b"),
        pytest.param(7, 917_504, None, 137_457, 46.72, id="G12c"),
    ],
)
def test_g12_finish(count: int, size: int, outstanding: int | None, expected: int, gigabytes_per_s: float) -> None:
    assert finish(proxy(count, size), outstanding) == expected
    assert round(count * size / expected, 2) == gigabytes_per_s


@pytest.mark.parametrize(
    ("phases", "saving"),
    [(["schedule_ns"], 124_330), (["doorbell_ns"], 67_200), (["schedule_ns", "wqe_ns", "doorbell_ns"], 125_830)],
)
def test_g12w_savings_do_not_add_up(phases: list[str], saving: int) -> None:
    messages = proxy(56, 114_688)
    assert finish(messages) - finish(messages.without(*phases)) == saving


def test_g4a_stop_and_wait_finishes_after_a_thousand_round_trips() -> None:
    messages = Messages(np.full(1_000, 4_096), doorbell_ns=300)
    assert finish(messages, outstanding=1, rtt0_ns=7_918) == 8_300_000
    # Avoidable: all round trips but one.
    assert finish(messages, outstanding=1, rtt0_ns=7_918) - finish(messages, 1, 0) - 7_918 == 7_910_082


def test_g4b_pipelined_finishes_after_one() -> None:
    messages = Messages(np.full(1_000, 4_096), doorbell_ns=300)
    result = replay(messages, beta_bytes_per_s=BETA, rtt0_ns=7_918)
    assert result.finish_ns - int(result.exit_ns[0]) == 307_700


def test_wire_time_is_the_exact_ceiling_at_any_size() -> None:
    sizes = [0, 1, 4_096, 2**31 - 1, 2**40 + 7, 2**62]
    for beta in (10**9, 45_000_000_001, 50 * 10**9, 3 * 10**12):
        assert wire_ns(sizes, beta).tolist() == [-(-size * 10**9 // beta) for size in sizes]


def test_no_messages_finish_at_once() -> None:
    assert finish(Messages(np.zeros(0, np.int64))) == 0


def test_a_limit_on_a_shared_nic_is_refused() -> None:
    with pytest.raises(ValueError, match="NIC of its own"):
        finish(Messages(np.ones(4), proxy=[0, 1, 0, 1]), outstanding=2)


# The oracle: one message after the other.


def slowly(rows: list[dict[str, int]], beta: int, rtt0: int, outstanding: int | None) -> list[tuple[int, int, int]]:
    cpu_free: dict[int, int] = {}
    taken: dict[int, list[int]] = {}
    exits = []
    for row in rows:
        start = max(row["ready_ns"], cpu_free.get(row["proxy"], row["ready_ns"]))
        if outstanding is not None and len(taken.get(row["proxy"], [])) >= outstanding:
            start = max(start, taken[row["proxy"]][-outstanding])
        exit_ns = start + row["schedule_ns"] + row["wqe_ns"] + row["doorbell_ns"]
        cpu_free[row["proxy"]] = exit_ns
        exits.append(exit_ns)
        if outstanding is not None:
            ends = _serve_all(rows[: len(exits)], exits, beta)
            taken.setdefault(row["proxy"], []).append(ends[-1] + rtt0 + row["excess_ns"])
    ends = _serve_all(rows, exits, beta)
    return [(x, e, e + rtt0 + row["excess_ns"]) for x, e, row in zip(exits, ends, rows, strict=True)]


def _serve_all(rows: list[dict[str, int]], exits: list[int], beta: int) -> list[int]:
    free: dict[int, int] = {}
    ends = [0] * len(exits)
    for index in sorted(range(len(exits)), key=lambda i: (exits[i], i)):
        row = rows[index]
        begin = max(exits[index] + row["fetch_ns"], free.get(row["nic"], 0))
        ends[index] = free[row["nic"]] = begin + -(-row["bytes"] * 10**9 // beta)
    return ends


_NAMES = ("bytes", "ready_ns", "schedule_ns", "wqe_ns", "doorbell_ns", "fetch_ns", "excess_ns", "proxy", "nic")
_ROW = st.fixed_dictionaries({name: st.integers(0, 2 if name in ("proxy", "nic") else 5_000) for name in _NAMES})


@settings(max_examples=200, deadline=None)
@given(st.lists(_ROW, min_size=1, max_size=30), st.sampled_from([None, 1, 2, 3, 7]), st.integers(0, 4_000))
def test_replay_is_what_a_loop_gives(rows: list[dict[str, int]], outstanding: int | None, rtt0: int) -> None:
    if outstanding is not None:
        rows = [{**row, "nic": row["proxy"], "fetch_ns": 100} for row in rows]
    columns: dict[str, Any] = {name: np.array([row[name] for row in rows]) for name in _NAMES}
    found = replay(Messages(**columns), beta_bytes_per_s=3 * 10**9, rtt0_ns=rtt0, outstanding=outstanding)
    expected = slowly(rows, 3 * 10**9, rtt0, outstanding)
    assert list(zip(found.exit_ns, found.service_end_ns, found.complete_ns, strict=True)) == expected


def _phases(largest: int) -> st.SearchStrategy[tuple[int, int, int, int]]:
    """Bytes, schedule, work request, doorbell."""
    return st.tuples(st.integers(1, largest), st.integers(0, 4_000), st.integers(1, 500), st.integers(0, 2_000))


_CASES = st.one_of(
    st.tuples(st.none(), st.lists(_phases(300_000), min_size=1, max_size=20), st.integers(0, 5_000)),
    # One outstanding is a stop-and-wait chain: eight messages or more, the wire under half of the flight.
    st.tuples(st.just(1), st.lists(_phases(20_000), min_size=8, max_size=20), st.integers(2_000, 5_000)),
)


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(_CASES, st.integers(0, 2_000), st.integers(0, 800))
def test_i11_control_plane_and_doorbell_to_zero_saves_what_was_attributed(
    case: tuple[int | None, list[tuple[int, int, int, int]], int], notify: int, fetch: int
) -> None:
    outstanding, phases, rtt0 = case
    size, schedule, wqe, doorbell = (np.array(column) for column in zip(*phases, strict=True))
    ready = np.zeros(len(size), np.int64)
    ready[0] = notify
    messages = Messages(size, ready, schedule, wqe, doorbell, fetch)
    run = replay(messages, beta_bytes_per_s=BETA, rtt0_ns=rtt0, outstanding=outstanding)
    enter = run.exit_ns - doorbell - wqe
    traced = [
        Message(
            int(size[k]),
            int(enter[k]),
            int(run.exit_ns[k]),
            int(run.complete_ns[k]),
            doorbell_ns=int(enter[k] + wqe[k]),
            schedule=(int(enter[k] - schedule[k]), int(enter[k])) if schedule[k] else None,
            notify=(0, notify) if k == 0 and notify else None,
        )
        for k in range(len(size))
    ]
    shares = attribute_phases(traced, window=(0, run.finish_ns), beta_bytes_per_s=BETA, rtt0_ns=rtt0, fetch_ns=fetch)
    ideal = messages.without("ready_ns", "schedule_ns", "wqe_ns", "doorbell_ns", "fetch_ns")
    saving = run.finish_ns - finish(ideal, outstanding, rtt0)
    assert sum(ns for category, ns in shares.items() if category.startswith("ctl_")) == saving
