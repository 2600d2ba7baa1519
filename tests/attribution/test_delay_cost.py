"""Waits charged to what their culprits did: DESIGN §4, waits; invariant I6."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attribution.plain import plain, run

Segment = tuple[int, int, int, str]  # rank, start, end, category
Piece = tuple[int, int, int, int]  # rank, start, end, culprit


def charged(segments: list[Segment], pieces: list[Piece]) -> dict[tuple[int, int, str, int], int]:
    """(victim, culprit, category, hop) → ns."""
    connection = plain(
        segments=[{"rank": r, "step": 0, "start_ns": s, "end_ns": e, "category": c} for r, s, e, c in segments],
        _wait_pieces=[
            {
                "rank": r, "step": 0, "op_id": n, "kind": "straggler", "culprit_rank": c, "window_start_ns": s,
                "within_clock_error": False, "start_ns": s, "end_ns": e,
            }
            for n, (r, s, e, c) in enumerate(pieces)
        ],
    )  # fmt: skip
    run(connection, "_wait_owners", "_culprit_timeline", "delay_cost")
    return {
        (victim, culprit, category, hop): delay
        for victim, culprit, category, hop, delay in connection.execute(
            "SELECT victim_rank, culprit_rank, category, hop, delay_ns FROM delay_cost"
        ).fetchall()
    }


def test_the_culprits_categories_over_the_same_instants_get_the_cost() -> None:
    segments = [
        (0, 0, 10, "compute"), (0, 10, 40, "wait_straggler"), (0, 40, 50, "compute"),
        (1, 0, 25, "host_data"), (1, 25, 40, "compute"), (1, 40, 50, "comm_unattributed"),
    ]  # fmt: skip
    assert charged(segments, [(0, 10, 40, 1)]) == {(0, 1, "compute", 0): 15, (0, 1, "host_data", 0): 15}


def test_a_culprit_that_waited_itself_passes_the_cost_on() -> None:
    segments = [
        (0, 0, 30, "wait_straggler"), (0, 30, 40, "compute"),
        (1, 0, 20, "wait_pipeline"), (1, 20, 40, "memcpy"),
        (2, 0, 15, "compute"), (2, 15, 40, "host_sync"),
    ]  # fmt: skip
    assert charged(segments, [(0, 0, 30, 1), (1, 0, 20, 2)]) == {
        (0, 1, "memcpy", 0): 10,
        (0, 2, "compute", 1): 15,
        (0, 2, "host_sync", 1): 5,
        (1, 2, "compute", 0): 15,
        (1, 2, "host_sync", 0): 5,
    }


def test_two_ranks_that_wait_for_each_other_end_as_waits() -> None:
    segments = [(0, 0, 10, "wait_sender"), (1, 0, 10, "wait_sender")]
    assert charged(segments, [(0, 0, 10, 1), (1, 0, 10, 0)]) == {
        (0, 1, "wait_sender", 0): 10,
        (1, 0, "wait_sender", 0): 10,
    }


def test_instants_that_the_culprits_capture_does_not_cover_are_charged_as_idle_other() -> None:
    segments = [(0, 0, 30, "wait_straggler"), (1, 10, 20, "compute")]
    assert charged(segments, [(0, 0, 30, 1)]) == {(0, 1, "compute", 0): 10, (0, 1, "idle_other", 0): 20}
    assert charged([(0, 0, 30, "wait_straggler")], [(0, 0, 30, 1)]) == {(0, 1, "idle_other", 0): 30}


def test_ctl_cpu_is_charged_as_a_whole() -> None:
    segments = [(0, 0, 9, "wait_sender"), (1, 0, 9, "ctl_cpu")]
    assert charged(segments, [(0, 0, 9, 1)]) == {(0, 1, "ctl_cpu", 0): 9}


def slow(segments: list[Segment], pieces: list[Piece]) -> dict[tuple[int, int, str, int], int]:
    """Nanosecond by nanosecond, following whoever is waited for."""

    def category(rank: int, t: int) -> str | None:
        return next((c for r, s, e, c in segments if r == rank and s <= t < e), None)

    def owner(rank: int, t: int) -> int | None:
        waiting = [(s, n, c) for n, (r, s, e, c) in enumerate(pieces) if r == rank and s <= t < e]
        return min(waiting)[2] if waiting else None

    found: Counter[tuple[int, int, str, int]] = Counter()
    for victim, start, end, culprit in pieces:
        for t in range(start, end):
            path, hop = [victim, culprit], 0
            while True:
                then = category(path[-1], t)
                following = owner(path[-1], t) if then is not None and then.startswith("wait_") else None
                if following is None or following in path:
                    break
                path.append(following)
                hop += 1
            found[victim, path[-1], then or "idle_other", hop] += 1
    return dict(found)


@st.composite
def runs(draw: Any) -> tuple[list[Segment], list[Piece]]:
    """Four ranks; where a segment waits, pieces cover it, sometimes two at once."""
    segments: list[Segment] = []
    pieces: list[Piece] = []
    for rank in range(4):
        at = draw(st.integers(0, 4))
        for _ in range(draw(st.integers(0, 5))):
            end = at + draw(st.integers(1, 8))
            category = draw(st.sampled_from(["compute", "host_sync", "wait_straggler", "wait_sender"]))
            segments.append((rank, at, end, category))
            if category.startswith("wait_"):
                others = [other for other in range(4) if other != rank]
                middle = draw(st.integers(at, end))
                for start, stop in ((at, middle), (middle, end)):
                    if stop > start:
                        pieces.append((rank, start, stop, draw(st.sampled_from(others))))
                if draw(st.booleans()):
                    pieces.append((rank, at, end, draw(st.sampled_from(others))))
            at = end + draw(st.sampled_from([0, 0, 0, 2]))
    return segments, pieces


@settings(max_examples=40, deadline=None)
@given(runs())
def test_i6_delay_cost_adds_up_to_the_waits_and_goes_where_a_slow_walk_goes(
    drawn: tuple[list[Segment], list[Piece]],
) -> None:
    segments, pieces = drawn
    found = charged(segments, pieces)
    assert found == slow(segments, pieces)
    assert sum(found.values()) == sum(end - start for _, start, end, _ in pieces)


def test_waits_of_any_number_are_followed() -> None:
    """More than DuckDB's limit for small ASOF joins: the plan of a large run is another one."""
    n = 3_000
    segments = [
        segment
        for k in range(n)
        for segment in ((0, 20 * k, 20 * k + 20, "wait_straggler"), (1, 20 * k, 20 * k + 20, "host_data"))
    ]
    assert charged(segments, [(0, 20 * k, 20 * k + 20, 1) for k in range(n)]) == {(0, 1, "host_data", 0): 20 * n}
