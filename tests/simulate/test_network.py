"""Serial resources against loops that say the same one job at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.simulate.network import fifo, next_at_or_after, serial_posts

_JOB = st.tuples(st.integers(0, 3), st.integers(0, 2_000), st.integers(0, 300))


@given(st.lists(_JOB, max_size=60))
@settings(max_examples=200, deadline=None)
def test_a_fifo_server_serves_one_job_at_a_time_in_order_of_readiness(jobs: list[tuple[int, int, int]]) -> None:
    free: dict[int, int] = {}
    expected = {}
    for k, (server, ready, work) in sorted(enumerate(jobs), key=lambda job: (job[1][1], job[0])):
        start = max(ready, free.get(server, 0))
        free[server] = start + work
        expected[k] = (start, start + work)

    columns = np.array(jobs, np.int64).reshape(-1, 3).T
    start, end = fifo(columns[0], columns[1], columns[2], np.arange(len(jobs)))

    assert [expected[k] for k in range(len(jobs))] == list(zip(start.tolist(), end.tolist(), strict=True))


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50), st.integers(0, 3_000)), min_size=1, max_size=40))
@settings(max_examples=100, deadline=None)
def test_a_proxy_posts_one_after_another_and_not_before_a_message_is_ready(rows: list[tuple[int, int, int]]) -> None:
    expected, at = [], 100
    for k, (busy, between, ready) in enumerate(rows):
        at = max(at + (between if k else 0), ready)
        expected.append(at)
        at += busy

    busy, between, ready = (np.array(column, np.int64)[None, :] for column in zip(*rows, strict=True))
    actual = serial_posts(np.array([100]), busy, between, ready)

    assert expected == actual[0].tolist()


def test_the_next_instant_is_looked_up_in_the_own_row_only() -> None:
    grid = np.array([[10, 20, 30], [100, 200, 300]])
    at = np.array([[10, 21, 31], [1, 150, 301]])

    assert next_at_or_after(grid, at, np.full((2, 3), -1)).tolist() == [[10, 30, -1], [100, 200, -1]]
