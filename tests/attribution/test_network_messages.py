"""rdma_messages: which completion belongs to which post, what was in flight, and what was blocked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attribution.rdma import connect, load_capture, run

DATA = Path(__file__).resolve().parents[1] / "data" / "ebpf"


def post(at: int, wr_id: int = 0, **more: Any) -> dict[str, Any]:
    return {"enter_ns": at, "exit_ns": at + 1, "wr_id": wr_id, **more}


def seen(at: int, wr_id: int = 0, **more: Any) -> dict[str, Any]:
    return {"seen_ns": at, "wr_id": wr_id, **more}


def messages(columns: str = "complete_ns", **tables: Any) -> list[Any]:
    """Rows (or, for one column, values) of rdma_messages in order of posting."""
    rows = run(connect(**tables)).execute(f"SELECT {columns} FROM rdma_messages ORDER BY qp, enter_ns").fetchall()
    return [row[0] for row in rows] if "," not in columns else rows


def test_posts_and_completions_pair_in_order_although_ids_repeat() -> None:
    posts = [post(0, 7), post(10, 7), post(20, 7)]
    assert messages(rdma_posts=posts, rdma_completions=[seen(15, 7), seen(25, 7), seen(40, 7)]) == [15, 25, 40]


def test_queue_pairs_of_one_number_in_two_processes_are_two() -> None:
    posts = [post(0, 1, pid=1), post(5, 1, pid=2)]
    completions = [seen(9, 1, pid=2), seen(30, 1, pid=1)]
    assert messages("pid, complete_ns", rdma_posts=posts, rdma_completions=completions) == [(1, 30), (2, 9)]


def test_unsignalled_posts_complete_with_the_next_signalled_one() -> None:
    posts = [post(0, 1, signaled=False), post(10, 2, signaled=False), post(20, 3), post(30, 4, signaled=False)]
    assert messages(rdma_posts=posts, rdma_completions=[seen(50, 3)]) == [50, 50, 50, None]


def test_after_a_lost_completion_the_next_known_id_resynchronises() -> None:
    posts = [post(0, 1), post(10, 2), post(20, 3), post(30, 4)]
    assert messages(
        "complete_ns, released_ns", rdma_posts=posts, rdma_completions=[seen(40, 1), seen(60, 3), seen(70, 4)]
    ) == [(40, 40), (None, 60), (60, 60), (70, 70)]


def test_a_completion_whose_post_was_lost_is_nobodys() -> None:
    posts = [post(10, 2), post(20, 3)]
    assert messages(rdma_posts=posts, rdma_completions=[seen(5, 9), seen(30, 1), seen(40, 2), seen(50, 3)]) == [40, 50]


def test_a_queue_pair_number_that_is_used_again_starts_afresh() -> None:
    posts = [post(0, 1), post(10, 2), post(1000, 1), post(1010, 2)]
    completions = [seen(20, 1), seen(1020, 1), seen(1030, 2)]
    assert messages(rdma_posts=posts, rdma_completions=completions) == [20, None, 1020, 1030]


def test_a_chain_whose_recorded_id_is_not_its_completions_pairs_by_order() -> None:
    """NCCL leaves the id of a chain's first request 0; the completion carries the last request's."""
    posts = [post(at, 0, n_wr=2) for at in (0, 10, 20)]
    assert messages(rdma_posts=posts, rdma_completions=[seen(15, 4), seen(25, 5), seen(35, 6)]) == [15, 25, 35]


def test_receives_in_the_same_queue_complete_no_send() -> None:
    posts = [post(0, 1), post(10, 1)]
    completions = [seen(11, 1, opcode="RECV_RDMA_WITH_IMM"), seen(12, 1, opcode="129"), seen(20, 1), seen(30, 1)]
    assert messages(rdma_posts=posts, rdma_completions=completions) == [20, 30]


def test_an_error_keeps_its_status_and_flushes_unsignalled_requests_too() -> None:
    posts = [post(0, 1), post(10, 2, signaled=False), post(20, 3)]
    completions = [seen(30, 1, status=12), seen(31, 2, status=5), seen(32, 3, status=5)]
    assert messages("complete_ns, status", rdma_posts=posts, rdma_completions=completions) == [
        (30, 12),
        (31, 5),
        (32, 5),
    ]


def test_a_post_that_failed_is_no_message() -> None:
    assert messages(rdma_posts=[post(0, 1, ret=12), post(10, 2)], rdma_completions=[seen(20, 2)]) == [20]


def test_completions_of_one_poll_may_carry_one_time() -> None:
    posts = [post(0, 9), post(10, 3), post(20, 5)]
    assert messages(rdma_posts=posts, rdma_completions=[seen(30, 3), seen(30, 5), seen(30, 9)]) == [30, 30, 30]


def test_ids_that_wrap_within_one_poll_pair_in_the_order_of_the_posts() -> None:
    posts = [post(0, 65535), post(10, 0), post(20, 1)]
    completions = [seen(30, 0), seen(30, 65535, status=12), seen(40, 1)]
    assert messages("wr_id, complete_ns, status", rdma_posts=posts, rdma_completions=completions) == [
        (65535, 30, 12),
        (0, 30, 0),
        (1, 40, 0),
    ]


def test_a_wakeup_in_the_gap_is_no_blocking_round_trip() -> None:
    posts = [post(0, 1), post(100, 2), post(300, 3), post(500, 4)]
    completions = [seen(50, 1), seen(150, 2), seen(350, 3)]
    states = [
        {"start_ns": 0, "end_ns": 160, "state": "running"},
        {"start_ns": 160, "end_ns": 250, "state": "blocked"},
        {"start_ns": 250, "end_ns": 260, "state": "runnable"},
        {"start_ns": 260, "end_ns": 400, "state": "running"},
        {"start_ns": 400, "end_ns": 450, "state": "runnable"},  # a preemption wakes nobody
        {"start_ns": 450, "end_ns": 600, "state": "running"},
    ]
    assert messages("blocked", rdma_posts=posts, rdma_completions=completions, thread_states=states) == [
        False,
        True,
        False,
        True,
    ]


def test_messages_carry_the_step_and_the_operation_they_were_posted_in() -> None:
    """Of overlapping operations the one that began first owns the instant."""
    operations = [
        {"op_id": 0, "start_ns": 0, "end_ns": 50},
        {"op_id": 1, "start_ns": 10, "end_ns": 40},
        {"op_id": 2, "start_ns": 30, "end_ns": 100},
    ]
    steps = [{"step": 4, "start_ns": 0, "end_ns": 60}, {"step": 5, "start_ns": 60, "end_ns": 90}]
    posts = [post(at) for at in (0, 20, 49, 50, 99, 100)]
    assert messages("op_id, step", rdma_posts=posts, _operations=operations, steps=steps) == [
        (0, 4),
        (0, 4),
        (0, 4),
        (2, 4),
        (2, None),
        (None, None),
    ]


# The oracle: the rule as it reads, one event at a time.


def greedy(posts: list[tuple[int, int]], completions: list[tuple[int, int]]) -> list[int | None]:
    """posts, completions: (ns, wr_id) in order. The completion of each post, or None."""
    done: list[int | None] = [None] * len(posts)
    first = 0
    for at, wr_id in completions:
        for index in range(first, len(posts)):
            if posts[index][0] <= at and posts[index][1] == wr_id:
                done[index] = at
                first = index + 1
                break
    return done


def in_flight(posts: list[tuple[int, int]], done: list[int | None]) -> list[int]:
    count = []
    for index, (at, _) in enumerate(posts):
        later = [[d for d in done[earlier:] if d is not None] for earlier in range(index)]
        count.append(sum(not ends or min(ends) > at for ends in later))
    return count


@st.composite
def lossy_queue(draw: st.DrawFn) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """A queue pair's true life, with any of its records lost."""
    n = draw(st.integers(1, 25))
    ids = draw(st.sampled_from([1, 2, 3, 8, 100]))
    gaps = draw(st.lists(st.integers(1, 30), min_size=n, max_size=n))
    flights = draw(st.lists(st.integers(0, 60), min_size=n, max_size=n))
    at, last, posts, completions = 0, 0, [], []
    for index in range(n):
        at += gaps[index]
        last = max(last + 1, at + flights[index])
        posts.append((2 * at, index % ids))
        completions.append((2 * last + 1, index % ids))
    keep = st.lists(st.sampled_from([True, True, True, False]), min_size=n, max_size=n)
    kept_posts = [p for p, k in zip(posts, draw(keep), strict=True) if k]
    return kept_posts, [c for c, k in zip(completions, draw(keep), strict=True) if k]


@settings(max_examples=60, deadline=None)
@given(st.lists(lossy_queue(), min_size=1, max_size=3))
def test_pairing_and_number_in_flight_are_those_of_the_rule_read_aloud(queues: Any) -> None:
    found = messages(
        "qp, complete_ns, outstanding_at_post",
        rdma_posts=[post(at, wr_id, qp=qp) for qp, (posts, _) in enumerate(queues) for at, wr_id in posts],
        rdma_completions=[seen(at, wr_id, qp=qp) for qp, (_, done) in enumerate(queues) for at, wr_id in done],
    )
    expected = []
    for qp, (posts, completions) in enumerate(queues):
        done = greedy(posts, completions)
        expected += [(qp, d, n) for d, n in zip(done, in_flight(posts, done), strict=True)]
    assert found == expected


@pytest.mark.parametrize(("run_name", "fire_and_forget"), [("run_collect023", 0), ("run_collect017", 1)])
def test_real_captures_block_in_stop_and_wait_and_never_when_pipelined(run_name: str, fire_and_forget: int) -> None:
    """Phase b stops and waits, put then signal; c and d are pipelined; a wakes up for each batch."""
    folder = DATA / run_name
    connection = connect()
    load_capture(connection, folder / "ebpf.out")
    run(connection)
    connection.execute(
        """CREATE TEMP TABLE truth AS SELECT mode, kind, qp, row_number() OVER (PARTITION BY qp ORDER BY enter_ns) AS k
        FROM read_csv($1)""",
        [str(folder / "truth.csv")],
    )
    found = connection.execute(
        """SELECT mode, kind, count(complete_ns), count(*) FILTER (blocked), sum(outstanding_at_post)::BIGINT
        FROM (SELECT *, row_number() OVER (PARTITION BY qp ORDER BY enter_ns) AS k FROM rdma_messages)
        JOIN truth USING (qp, k) GROUP BY ALL ORDER BY ALL"""
    ).fetchall()
    in_flight_a = {"run_collect023": 978, "run_collect017": 450}[run_name]
    assert found == [
        ("a", "put", 300, fire_and_forget, in_flight_a),
        ("b", "put", 300, 299, 0),
        ("b", "signal", 300, 300, 0),
        ("c", "put", 300, 0, 4436),
        ("c", "signal", 300, 0, 4152),
        ("d", "put_chain", 300, 0, 3954),
    ]
