"""The timeline on random traces against the oracle: invariants I1 to I5, I7 and I10."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.attribution import oracle, timeline
from tests.attribution.oracle import Row, Trace

if TYPE_CHECKING:
    import duckdb

SPAN = 60
_quiet = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
_ordinary = settings(max_examples=40, deadline=None, suppress_health_check=_quiet)
_twice = settings(max_examples=12, deadline=None, suppress_health_check=_quiet)


def _interval(longest: int = 25, shortest: int = 0) -> st.SearchStrategy[Row]:
    return st.tuples(st.integers(0, SPAN), st.integers(shortest, longest)).map(
        lambda pair: {"start_ns": pair[0], "end_ns": pair[0] + pair[1]}
    )


def _row(interval: st.SearchStrategy[Row], **columns: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    return st.tuples(interval, st.fixed_dictionaries(columns)).map(lambda pair: {**pair[0], **pair[1]})


_tid = st.integers(1, 2)
_op = _row(
    _interval(),
    op_class=st.sampled_from(["compute", "comm", "comm", "copy"]),
    stream=st.integers(7, 9),
    name=st.sampled_from(["a", "b"]),
    launch_start_ns=st.none() | st.integers(-5, SPAN),
    launch_tid=_tid,
).map(lambda op: op if op["launch_start_ns"] is not None else {**op, "launch_tid": None})
_candidate = _row(
    _interval(shortest=1),
    category=st.sampled_from([*oracle.ORDER[1:12]]),
    evidence=st.sampled_from(["inferred", "measured_ebpf"]),
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    edges = sorted(draw(st.lists(st.integers(-5, SPAN + 10), min_size=2, max_size=5, unique=True)))
    steps = [
        {"start_ns": start, "end_ns": end - draw(st.integers(0, min(3, end - start - 1))), "text": f"step_{number}"}
        for number, (start, end) in enumerate(pairwise(edges))
    ]
    return Trace(
        ops=draw(st.lists(_op, min_size=1, max_size=8)),
        steps=steps,
        api=draw(
            st.lists(
                _row(
                    _interval(shortest=1),
                    tid=_tid,
                    name=st.sampled_from(
                        ["cudaDeviceSynchronize", "cudaMemcpy", "cudaMemcpyAsync", "cudaLaunchKernel"]
                    ),
                ),
                max_size=4,
            )
        ),
        data=draw(st.lists(_row(_interval(shortest=1), tid=_tid), max_size=2)),
        os_calls=draw(
            st.lists(_row(_interval(shortest=1), tid=_tid, name=st.sampled_from(["read", "poll"])), max_size=3)
        ),
        states=draw(
            st.lists(
                _row(
                    _interval(shortest=1),
                    tid=_tid,
                    pid=st.just(1),
                    state=st.sampled_from(["running", "blocked", "runnable"]),
                ),
                max_size=2,
            )
        ),
        losses=draw(st.lists(_row(_interval(), source=st.sampled_from(["ebpf", "nsys"])), max_size=2)),
        candidates=draw(st.lists(_candidate, max_size=6)),
    )


def _breakdown(database: duckdb.DuckDBPyConnection) -> dict[tuple[int, str, str], tuple[int, int, int]]:
    found = timeline.rows(
        database,
        "SELECT step, category, evidence, attributed_ns, exclusive_ns, inclusive_ns FROM breakdown ORDER BY ALL",
    )
    return {(step, category, evidence): (a, e, i) for step, category, evidence, a, e, i in found}


def _segments(database: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    return timeline.rows(database, "SELECT step, start_ns, end_ns, category, evidence FROM segments ORDER BY start_ns")


@_ordinary
@given(traces())
def test_I1_I2_I4_I10_segments_and_breakdown_equal_the_oracle_and_add_up(
    database: duckdb.DuckDBPyConnection, trace: Trace
) -> None:
    timeline.run(database, trace)
    steps = timeline.rows(database, "SELECT step, start_ns, end_ns FROM steps ORDER BY step")
    assert oracle.cut_steps(trace) == steps
    assert oracle.segments(trace) == _segments(database)
    assert oracle.breakdown(trace) == _breakdown(database)
    unequal = """
        SELECT step FROM steps
        LEFT JOIN (SELECT step, sum(attributed_ns) AS ns FROM breakdown GROUP BY step) USING (step)
        LEFT JOIN (SELECT step, sum(end_ns - start_ns) AS drawn FROM segments GROUP BY step) USING (step)
        WHERE coalesce(ns, 0) <> end_ns - start_ns OR coalesce(drawn, 0) <> end_ns - start_ns"""
    assert timeline.rows(database, unequal) == []
    overlapping = """
        SELECT * FROM (SELECT start_ns, lag(end_ns) OVER (ORDER BY start_ns) AS before FROM segments)
        WHERE start_ns <> before"""
    assert timeline.rows(database, overlapping) == []
    unordered = """
        SELECT * FROM breakdown
        WHERE NOT (exclusive_ns <= attributed_ns AND attributed_ns <= inclusive_ns)
            OR hidden_ns + attributed_ns <> inclusive_ns OR lo_ns > attributed_ns OR hi_ns < attributed_ns"""
    assert timeline.rows(database, unordered) == []


@_twice
@given(traces(), st.randoms(use_true_random=False), st.integers(0, 10**18))
def test_I3_order_cuts_and_a_shift_of_time_change_nothing(
    database: duckdb.DuckDBPyConnection, trace: Trace, chance: random.Random, shift: int
) -> None:
    timeline.run(database, trace)
    before = _breakdown(database), _segments(database)

    def moved(rows: list[Row]) -> list[Row]:
        times = ("start_ns", "end_ns", "launch_start_ns")
        found = [{k: v + shift if k in times and v is not None else v for k, v in row.items()} for row in rows]
        chance.shuffle(found)
        return found

    def halved(rows: list[Row]) -> list[Row]:
        out = []
        for row in rows:
            middle = chance.randint(row["start_ns"], row["end_ns"])
            out += [{**row, "end_ns": middle}, {**row, "start_ns": middle}]
        return out

    changed = Trace(
        ops=moved(trace.ops),
        steps=[{**row} for row in moved(trace.steps)],
        api=moved(halved(trace.api)),
        data=moved(halved(trace.data)),
        os_calls=moved(halved(trace.os_calls)),
        states=moved(halved(trace.states)),
        losses=moved(halved(trace.losses)),
        candidates=moved(halved(trace.candidates)),
    )
    timeline.run(database, changed)
    unshifted = [(step, start - shift, end - shift, *rest) for step, start, end, *rest in _segments(database)]
    assert before == (_breakdown(database), unshifted)


@_twice
@given(traces(), st.sampled_from(["api", "data", "os_calls", "states", "candidates"]))
def test_I7_without_a_source_time_moves_to_a_coarser_name(
    database: duckdb.DuckDBPyConnection, trace: Trace, source: str
) -> None:
    trace = replace(trace, losses=[])
    timeline.run(database, trace)
    full = _breakdown(database)
    timeline.run(database, replace(trace, **{source: []}))
    without = _breakdown(database)
    may_rise = {"comm_unattributed"} if source == "candidates" else set(oracle.HOST)
    for (step, category, evidence), (attributed, _, _) in without.items():
        if category not in may_rise:
            assert attributed <= full.get((step, category, evidence), (0, 0, 0))[0], category
