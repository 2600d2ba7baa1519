"""Which operations of the ranks are one collective: DESIGN §4, participants of an operation."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attribution.plain import operations, plain, ranks, run

TWO = {0: "a", 1: "a"}
FOUR = {0: "a", 1: "a", 2: "b", 3: "b"}


def participants(connection: Any) -> dict[str, list[list[tuple[int, int]]]]:
    """basis → instances, each a list of (rank, op_id)."""
    run(connection, "_participants")
    found: dict[str, list[list[tuple[int, int]]]] = {}
    for basis, members in connection.execute(
        "SELECT basis, list((rank, op_id) ORDER BY rank) FROM _participants GROUP BY basis, instance_id ORDER BY instance_id"
    ).fetchall():
        found.setdefault(basis, []).append(members)
    return found


def test_communicator_and_sequence_number_decide_whatever_the_times_say() -> None:
    rows = [
        {"rank": 0, "op_id": 0, "op": "AllReduce", "comm_id": "c", "seq": 7, "start_ns": 0, "end_ns": 10},
        {"rank": 0, "op_id": 1, "op": "AllReduce", "comm_id": "c", "seq": 8, "start_ns": 20, "end_ns": 30},
        {"rank": 1, "op_id": 0, "op": "AllReduce", "comm_id": "c", "seq": 8, "start_ns": 5_000, "end_ns": 6_000},
    ]
    assert participants(plain(_operations=rows, **ranks(TWO))) == {"communicator": [[(0, 1), (1, 0)]]}


def test_operations_share_an_instant_on_every_rank_of_the_run() -> None:
    rows = operations(
        (0, 0, "AllReduce", 0, 10), (1, 0, "AllReduce", 9, 12), (0, 1, "AllReduce", 20, 30), (1, 1, "AllReduce", 30, 31)
    )
    assert participants(plain(_operations=rows, **ranks(TWO))) == {"run_order": [[(0, 0), (1, 0)]]}


def test_between_nodes_the_coarse_clock_error_is_allowed_for_and_within_a_node_none() -> None:
    rows = operations(
        (0, 0, "x", 0, 10), (1, 0, "x", 5, 12), (2, 0, "x", 1_000_009, 1_000_020), (3, 0, "x", 1_000_009, 1_000_030)
    )
    assert participants(plain(_operations=rows, **ranks(FOUR))) == {"run_order": [[(0, 0), (1, 0), (2, 0), (3, 0)]]}
    rows = operations(
        (0, 0, "x", 0, 10), (1, 0, "x", 5, 12), (2, 0, "x", 1_000_010, 1_000_020), (3, 0, "x", 1_000_009, 1_000_030)
    )
    assert participants(plain(_operations=rows, **ranks(FOUR))) == {"node_order": [[(0, 0), (1, 0)], [(2, 0), (3, 0)]]}


def test_after_the_fit_the_nodes_errors_take_the_coarse_ones_place() -> None:
    rows = operations((0, 0, "x", 0, 10), (1, 0, "x", 0, 10), (2, 0, "x", 13, 20), (3, 0, "x", 13, 30))
    clocks = [{"node": "a", "error_ns": 0, "status": "reference"}, {"node": "b", "error_ns": 4, "status": "fitted"}]
    assert list(participants(plain(_operations=rows, clock_offsets=clocks, **ranks(FOUR)))) == ["run_order"]
    clocks[1]["error_ns"] = 3
    assert list(participants(plain(_operations=rows, clock_offsets=clocks, **ranks(FOUR)))) == ["node_order"]


def test_a_rank_that_lacks_the_kth_operation_leaves_it_without_participants_and_never_takes_the_nearest() -> None:
    rows = operations((0, 0, "x", 0, 10), (0, 1, "x", 100, 110), (1, 0, "x", 100, 110))
    assert participants(plain(_operations=rows, **ranks(TWO))) == {}


def test_a_rank_whose_file_is_unusable_is_left_out() -> None:
    rows = operations((0, 0, "x", 0, 10), (1, 0, "x", 0, 10))
    connection = plain(_operations=rows, **ranks(TWO))
    connection.execute("INSERT INTO ranks (rank, node) VALUES (2, 'a')")
    assert participants(connection) == {"run_order": [[(0, 0), (1, 0)]]}


def groups(*members: list[int]) -> list[dict[str, int]]:
    return [{"group_id": number, "rank": rank} for number, group in enumerate(members) for rank in group]


def test_an_operation_takes_the_smallest_group_whose_members_have_as_many() -> None:
    rows = operations(
        *[(rank, 0, "AllReduce", 0, 10) for rank in range(4)],
        *[(rank, 1, "AllToAll", 20, 30) for rank in (0, 1)],
        *[
            (rank, op, "Gather", 40 + op, 50 + op)
            for rank, n in ((0, 2), (1, 1), (2, 1), (3, 1))
            for op in range(2, 2 + n)
        ],
    )
    found = participants(plain(_operations=rows, comm_groups=groups([0, 1, 2, 3], [0, 1]), **ranks(FOUR)))
    # AllReduce and AllToAll of 0 and 1 fit the pair; then not all of the four take the four.
    # Gather: the pair differs in number, and so do the four.
    assert found == {"group": [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]}


def test_two_groups_of_one_size_that_both_fit_are_ambiguous() -> None:
    rows = operations(*[(rank, 0, "AllReduce", 0, 10) for rank in range(4)])
    both = groups([0, 1], [2, 3], [0, 2], [1, 3])
    assert participants(plain(_operations=rows, comm_groups=both, **ranks(FOUR))) == {}


def test_sizes_tell_two_groups_apart() -> None:
    rows = [
        *operations(*[(rank, 0, "AllReduce", 0, 10) for rank in range(4)], bytes=64),
        *operations(*[(rank, 1, "AllReduce", 20, 30) for rank in (0, 1)], bytes=4096),
    ]
    found = participants(plain(_operations=rows, comm_groups=groups([0, 1, 2, 3]), **ranks(FOUR)))
    assert found == {"group": [[(0, 0), (1, 0), (2, 0), (3, 0)]]}


def test_with_groups_given_nothing_falls_back_to_order_over_the_run() -> None:
    rows = operations((0, 0, "x", 0, 10), (1, 0, "x", 0, 10))
    assert participants(plain(_operations=rows, comm_groups=groups([0, 2]), **ranks({0: "a", 1: "a", 2: "a"}))) == {}


def test_a_send_meets_its_receive_by_order_of_the_pair() -> None:
    rows = [
        {"rank": 0, "op_id": 0, "op": "Send", "peer_rank": 1, "start_ns": 0, "end_ns": 10},
        {"rank": 0, "op_id": 1, "op": "Send", "peer_rank": 1, "start_ns": 20, "end_ns": 30},
        {"rank": 1, "op_id": 0, "op": "Recv", "peer_rank": 0, "start_ns": 5, "end_ns": 9},
        {"rank": 1, "op_id": 1, "op": "Recv", "peer_rank": 0, "start_ns": 6, "end_ns": 40},
    ]
    found = participants(plain(_operations=rows, **ranks(TWO)))
    assert found == {"peer": [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]}


def test_a_communicator_without_sequence_numbers_goes_by_order_where_all_members_have_as_many() -> None:
    rows = operations((0, 0, "x", 0, 10), (1, 0, "x", 0, 10), comm_id="tp") + operations(
        (0, 1, "x", 20, 30), (0, 2, "x", 40, 50), (2, 0, "x", 20, 30), comm_id="dp"
    )
    found = participants(plain(_operations=rows, **ranks({0: "a", 1: "a", 2: "a"})))
    assert found == {"communicator_order": [[(0, 0), (1, 0)]]}


Span = tuple[str, int, int]


def slow_order(
    spans: dict[int, list[Span]], nodes: dict[int, str], error: int
) -> dict[str, set[frozenset[tuple[int, int]]]]:
    """Ask every pair of ranks whether their k-th operations of a name share an instant."""
    kth: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = {}
    for rank, ops in spans.items():
        seen: dict[str, int] = {}
        for op_id, (name, start, end) in enumerate(ops):
            kth.setdefault((name, seen.get(name, 0)), {})[rank] = (op_id, start, end)
            seen[name] = seen.get(name, 0) + 1

    def share(members: dict[int, tuple[int, int, int]]) -> bool:
        return all(
            a[1] < b[2] + (0 if nodes[i] == nodes[j] else error)
            for i, a in members.items()
            for j, b in members.items()
            if i != j
        )

    found: dict[str, set[frozenset[tuple[int, int]]]] = {"run_order": set(), "node_order": set()}
    for members in kth.values():
        if len(members) == len(nodes) and share(members):
            found["run_order"].add(frozenset((rank, op[0]) for rank, op in members.items()))
            continue
        for node in set(nodes.values()):
            here = {rank: op for rank, op in members.items() if nodes[rank] == node}
            if len(here) == list(nodes.values()).count(node) > 1 and share(here):
                found["node_order"].add(frozenset((rank, op[0]) for rank, op in here.items()))
    return found


@settings(max_examples=50, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            rank: st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 6), st.integers(1, 12)), max_size=3)
            for rank in FOUR
        }
    ),
    st.integers(0, 6),
)
def test_matching_by_order_is_what_asking_every_pair_gives(drawn: dict[int, list[Span]], error: int) -> None:
    spans = {}
    for rank, ops in drawn.items():
        at, spans[rank] = 0, []
        for name, gap, length in ops:
            spans[rank].append((name, at + gap, at + gap + length))
            at += gap + length
    rows = operations(*[(rank, k, *op) for rank, ops in spans.items() for k, op in enumerate(ops)])
    found = participants(plain(_operations=rows, run_config=[{"clock_error_ns": error}], **ranks(FOUR)))
    expected = slow_order(spans, FOUR, error)
    assert {basis: {frozenset(members) for members in instances} for basis, instances in found.items()} == {
        basis: instances for basis, instances in expected.items() if instances
    }
