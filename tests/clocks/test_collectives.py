"""Offsets between nodes' clocks from happens-before: DESIGN §4, clocks."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pipeline.clocks.collectives import Constraints, bounds, fit, offset_interval, tighten
from pipeline.model.errors import ClockContradiction

FAR = 1 << 60


def test_g8_the_offset_is_the_middle_of_what_every_end_and_arrival_allow() -> None:
    collectives = [(100, 160, 20, 85), (300, 350, 190, 271), (500, 560, 410, 480)]
    found = offset_interval(collectives)
    assert (found.lo, found.hi) == (29, 140)
    assert (found.middle, found.half_width) == (Fraction(169, 2), Fraction(111, 2))


def test_a_least_latency_narrows_the_interval_from_both_sides() -> None:
    found = offset_interval([(100, 160, 20, 85)], least_latency_ns=5)
    assert (found.lo, found.hi) == (20, 135)


def test_a_contradiction_names_the_pair() -> None:
    # The first says 90 to 110, the second 20 to 40.
    collectives = [(100, 110, 0, 10), (200, 210, 170, 180)]
    with pytest.raises(ClockContradiction, match="nodes node-a and node-b contradict each other by 50 ns"):
        offset_interval(collectives, pair=("node-b", "node-a"))


def line_constraints(points: list[tuple[int, int, int]]) -> Constraints:
    at, lower, upper = (np.array(column, dtype=np.int64) for column in zip(*points, strict=True))
    return Constraints(at, lower, at, upper)


def test_the_interval_widens_with_drift_away_from_the_only_collective() -> None:
    lo, hi = bounds(
        line_constraints([(0, -10, 10)]), np.array([0, 1_000_000, 2_000_000]), ("a", "b"), max_drift_ppb=100_000
    )
    assert (lo.tolist(), hi.tolist()) == ([-10, -110, -210], [10, 110, 210])


def test_two_collectives_pin_the_drift() -> None:
    points = line_constraints([(0, -1, 1), (1_000_000, 4, 6)])
    lo, hi = bounds(points, np.array([0, 500_000, 1_000_000, 2_000_000]), ("a", "b"), max_drift_ppb=100_000)
    # Between them a line lies between the chords; beyond, slopes from (4 - 1) to (6 + 1) per 1 000 000.
    assert (lo.tolist(), hi.tolist()) == ([-1, 1, 4, 7], [1, 4, 6, 13])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(-200, 200),
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 30)),
        min_size=1,
        max_size=6,
        unique_by=lambda p: p[0],
    ),
    st.integers(-10, 50),
    st.integers(-1000, 1000),
)
def test_bounds_are_the_extreme_lines_of_a_slow_search(
    slope: int, around: list[tuple[int, int, int]], knot: int, offset: int
) -> None:
    # Slopes are in 1/1000; a line that exists by construction.
    unit, most = 1000, 200
    points = [(t * unit, offset + slope * t - below, offset + slope * t + above) for t, below, above in around]
    assume(abs(slope) <= most)
    lo, hi = bounds(line_constraints(points), np.array([knot * unit]), ("a", "b"), max_drift_ppb=most * 10**6)
    # Every extreme line runs through a point, at a slope between two points or at the steepest.
    corners = [(t, v) for t, low, high in points for v in (low, high)]
    slopes = {Fraction(most, 1000), Fraction(-most, 1000)}
    slopes |= {Fraction(b[1] - a[1], b[0] - a[0]) for a in corners for b in corners if a[0] != b[0]}
    values = []
    for t, v in corners:
        for rate in slopes:
            if abs(rate) <= Fraction(most, 1000) and all(low <= v + rate * (s - t) <= high for s, low, high in points):
                values.append(v + rate * (knot * unit - t))
    least, greatest = min(values), max(values)
    assert least - 1 <= lo[0] <= least + Fraction(1, 1000)
    assert greatest - Fraction(1, 1000) <= hi[0] <= greatest + 1


def test_third_nodes_tighten_a_pair() -> None:
    limits = np.array([[0, 5, 100], [5, 0, 5], [100, 5, 0]], dtype=np.int64)
    assert tighten(limits, ["a", "b", "c"])[0, 2] == 10


def test_a_contradiction_over_three_nodes_names_two_of_them() -> None:
    limits = np.full((3, 3), FAR, dtype=np.int64)
    # b - a >= 10, c - b >= 10, and a - c >= 10: around the circle the clocks would gain 30.
    for i, j in ((0, 1), (1, 2), (2, 0)):
        limits[j, i] = -10
        limits[i, j] = 12
    with pytest.raises(ClockContradiction, match="nodes"):
        tighten(limits, ["a", "b", "c"])


def test_a_node_without_shared_collectives_is_unaligned() -> None:
    found = fit(["a", "b", "c"], "a", {("a", "b"): line_constraints([(0, 3, 9)])}, [0, 1000])
    assert [(clock.node, clock.aligned, clock.offset_ns) for clock in found.clocks] == [
        ("a", True, 0),
        ("b", True, 6),
        ("c", False, 0),
    ]


def test_a_statement_narrows_and_one_that_contradicts_gives_way() -> None:
    pair = {("a", "b"): line_constraints([(0, 0, 100)])}
    narrowed = fit(["a", "b"], "a", pair, [0, 1000], stated_error_ns=20)
    assert (narrowed.clocks[1].offset_ns, narrowed.statement_used) == (10, True)
    refused = fit(["a", "b"], "a", pair, [0, 1000], stated_error_ns=20, shifts_ns={"b": 500})
    assert (refused.clocks[1].offset_ns, refused.statement_used) == (50, False)


def test_a_statement_connects_no_nodes() -> None:
    assert not fit(["a", "b"], "a", {}, [0, 1000], stated_error_ns=20).clocks[1].aligned


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.integers(1, 12), st.integers(0, 2**32 - 1))
def test_true_clocks_lie_within_the_stated_errors_of_every_pair_and_window(n_nodes: int, n: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    offset = chance.integers(-300_000, 300_001, n_nodes)
    drift = chance.uniform(-5e-6, 5e-6, n_nodes)
    offset[0], drift[0] = 0, 0
    span = 2_000_000_000
    nodes = [f"n{k}" for k in range(n_nodes)]
    begin = np.sort(chance.integers(0, span, n))
    arrival = begin[:, None] + chance.integers(0, 500_000, (n, n_nodes))
    end = arrival.max(axis=1)[:, None] + chance.integers(0, 50_000, (n, n_nodes))

    def shown(true_ns: np.ndarray) -> np.ndarray:
        return true_ns + offset + np.round(true_ns * drift).astype(np.int64)

    arrives, ends = shown(arrival), shown(end)
    given = {
        (nodes[i], nodes[j]): Constraints(
            ends[:, j], arrives[:, i] - ends[:, j], arrives[:, j], ends[:, i] - arrives[:, j]
        )
        for i in range(n_nodes)
        for j in range(i + 1, n_nodes)
    }
    knots = [span * k // 4 for k in range(5)]
    found = fit(nodes, "n0", given, knots)
    for w, (start, stop) in enumerate(itertools.pairwise(knots)):
        for true_ns in (start, (start + stop) // 2, stop):
            times = shown(np.full(n_nodes, true_ns))
            mapped = [
                int(t) + c.offset_ns + (int(t) - c.at_ns) * c.drift_ppb // 10**9
                for t, c in zip(times, found.clocks, strict=True)
            ]
            for i in range(n_nodes):
                for j in range(n_nodes):
                    assert abs(mapped[i] - mapped[j]) <= found.errors_ns[w, i, j]
