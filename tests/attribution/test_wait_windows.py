"""When an operation waits, and for whom: DESIGN §4, waits."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attribution.plain import operations, plain, ranks, run

NODES = {0: "a", 1: "a", 2: "b", 3: "b"}


def pairs(errors: dict[tuple[str, str], int]) -> list[dict[str, Any]]:
    return [
        {"node": x, "other_node": y, "start_ns": -1_000_000, "end_ns": 10**18, "error_ns": error}
        for (one, two), error in errors.items()
        for x, y in ((one, two), (two, one))
    ]


def windows(connection: Any) -> list[tuple[Any, ...]]:
    """(rank, culprit, kind, start, end, error, within) of each window."""
    run(connection, "_wait_windows")
    return connection.execute(
        "SELECT rank, culprit_rank, kind, start_ns, end_ns, clock_error_ns, within_clock_error FROM _wait_windows"
    ).fetchall()


def one_collective(spans: dict[int, tuple[int, int]]) -> dict[str, list[dict[str, Any]]]:
    return {
        "_operations": operations(*[(rank, 0, "x", *span) for rank, span in spans.items()]),
        "_participants": [{"rank": rank, "op_id": 0, "instance_id": 0, "basis": "run_order"} for rank in spans],
        **ranks({rank: NODES[rank] for rank in spans}),
    }


def test_g3_the_early_rank_waits_for_the_late_one() -> None:
    assert windows(plain(**one_collective({0: (100_000, 200_000), 1: (160_000, 200_000)}))) == [
        (0, 1, "straggler", 100_000, 160_000, 0, False)
    ]


def test_a_wait_beyond_the_clock_error_counts_whole_and_one_within_it_is_a_row_that_claims_nothing() -> None:
    spans = {0: (0, 900), 2: (51, 900)}
    assert windows(plain(**one_collective(spans), clock_pairs=pairs({("a", "b"): 50}))) == [
        (0, 2, "straggler", 0, 51, 50, False)
    ]
    connection = plain(**one_collective(spans), clock_pairs=pairs({("a", "b"): 51}))
    assert windows(connection) == [(0, 2, "straggler", 0, 51, 51, True)]
    run(connection, "_wait_candidates")
    assert connection.execute("SELECT * FROM _wait_candidates").fetchall() == []


def test_an_unaligned_node_is_nobodys_culprit_and_waits_for_nobody_elsewhere() -> None:
    assert windows(plain(**one_collective({0: (0, 900), 1: (20, 900), 2: (500, 900)}))) == [
        (0, 1, "straggler", 0, 20, 0, False)
    ]


def test_where_the_last_arrival_is_within_the_error_the_latest_beyond_it_decides() -> None:
    # For rank 0, rank 2 on the other node is last, but within 600; rank 1 on its own node is late for certain.
    assert windows(
        plain(**one_collective({0: (0, 900), 1: (20, 900), 2: (500, 900)}), clock_pairs=pairs({("a", "b"): 600}))
    ) == [
        (0, 1, "straggler", 0, 20, 0, False),
        (0, 2, "straggler", 20, 500, 600, True),
        (1, 2, "straggler", 20, 500, 600, True),
    ]


def test_a_wait_ends_with_the_operation() -> None:
    assert windows(plain(**one_collective({0: (0, 40), 1: (70, 90)}))) == [(0, 1, "straggler", 0, 40, 0, False)]


def test_a_point_to_point_wait_is_a_pipelines() -> None:
    tables = one_collective({0: (0, 40), 1: (30, 45)})
    for row in tables["_participants"]:
        row["basis"] = "peer"
    connection = plain(**tables)
    assert windows(connection) == [(0, 1, "pipeline", 0, 30, 0, False)]
    run(connection, "_wait_candidates")
    assert connection.execute("SELECT * FROM _wait_candidates").fetchall() == [(0, 30, "wait_pipeline", "inferred")]


def span(rank: int, last: int, peer: int | None = None) -> dict[str, Any]:
    return {"rank": rank, "op_id": 0, "peer_rank": peer, "messages": 1, "first_enter_ns": 1, "last_complete_ns": last}


def test_a_rank_whose_messages_are_done_waits_for_the_last_sender() -> None:
    tables = one_collective({0: (0, 100), 1: (0, 100)})
    assert windows(plain(**tables, _message_spans=[span(0, 30), span(1, 80)])) == [(0, 1, "sender", 30, 80, 0, False)]


def test_a_receiver_without_messages_waits_from_its_arrival_where_its_node_was_observed() -> None:
    tables = one_collective({0: (5, 100), 1: (5, 100)})
    assert windows(plain(**tables, _message_spans=[span(1, 80)])) == [(0, 1, "sender", 5, 80, 0, False)]
    tables = one_collective({0: (5, 100), 2: (5, 100)})
    clock = pairs({("a", "b"): 1})
    assert windows(plain(**tables, _message_spans=[span(2, 80)], clock_pairs=clock)) == []


def test_where_the_peer_is_known_only_messages_to_this_rank_are_waited_for() -> None:
    tables = one_collective({0: (0, 100), 1: (0, 100), 2: (0, 100)})
    messages = [span(0, 30), span(1, 90, peer=2), span(1, 50, peer=0)]
    clock = pairs({("a", "b"): 0})
    assert windows(plain(**tables, _message_spans=messages, clock_pairs=clock)) == [(0, 1, "sender", 30, 50, 0, False)]


def test_nothing_is_claimed_of_senders_inside_a_loss_of_the_nodes_events() -> None:
    tables = one_collective({0: (0, 100), 1: (0, 100)})
    losses = [
        {"node": "a", "source": "ebpf", "start_ns": 40, "end_ns": 50},
        {"node": "a", "source": "ebpf", "start_ns": 45, "end_ns": 60},
        {"node": "b", "source": "ebpf", "start_ns": 0, "end_ns": 100},
    ]
    assert windows(plain(**tables, _message_spans=[span(0, 30), span(1, 80)], losses=losses)) == [
        (0, 1, "sender", 30, 40, 0, False),
        (0, 1, "sender", 60, 80, 0, False),
    ]


def test_a_credit_that_the_profiler_saw_is_a_wait_on_its_peer() -> None:
    tables = one_collective({0: (0, 100), 1: (0, 100)})
    phases = [{"rank": 0, "peer_rank": 1, "phase": "SendPeerWait", "start_ns": 10, "end_ns": 25}]
    assert windows(plain(**tables, comm_phases=phases)) == [(0, 1, "credit", 10, 25, 0, False)]


def slow_stragglers(
    spans: dict[int, tuple[int, int]], error: dict[tuple[str, str], int | None]
) -> set[tuple[Any, ...]]:
    """Compare every rank with every other."""
    found = set()
    for i, (a, end) in spans.items():
        beyond, within = [], []
        for j, (b, _) in spans.items():
            e = 0 if NODES[i] == NODES[j] else error.get((min(NODES[i], NODES[j]), max(NODES[i], NODES[j])))
            if e is not None and b > a:
                (beyond if b - a > e else within).append((b, -j, e))
        reached = a
        if beyond:
            b, j, e = max(beyond)
            reached = b
            if min(b, end) > a:
                found.add((i, -j, "straggler", a, min(b, end), e, False))
        if within:
            b, j, e = max(within)
            if min(b, end) > reached:
                found.add((i, -j, "straggler", reached, min(b, end), e, True))
    return found


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.integers(0, 3),
        st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])),
        min_size=2,
    ),
    st.none() | st.integers(0, 8),
)
def test_every_wait_is_what_comparing_every_pair_gives(spans: dict[int, tuple[int, int]], error: int | None) -> None:
    errors = {} if error is None else {("a", "b"): error}
    found = windows(plain(**one_collective(spans), clock_pairs=pairs(errors)))
    assert set(found) == slow_stragglers(spans, errors)
    assert len(found) == len(set(found))
