"""ctl_cpu over its leaves: by occupancy in the exposed window, largest remainder, exact."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.attribution import timeline
from tests.attribution.oracle import Row, Trace

if TYPE_CHECKING:
    import duckdb


def _trace(span: int, compute: list[tuple[int, int]], ctl: list[tuple[int, int]]) -> Trace:
    """One communication kernel over the whole step, with compute over it and ctl_cpu in it."""
    base = {"launch_start_ns": None, "stream": 7}
    return Trace(
        ops=[
            {"start_ns": 0, "end_ns": span, "op_class": "comm", **base},
            *({"start_ns": a, "end_ns": b, "op_class": "compute", **base} for a, b in compute),
        ],
        steps=[{"start_ns": 0, "end_ns": span, "text": "step_0"}],
        candidates=[{"start_ns": a, "end_ns": b, "category": "ctl_cpu", "evidence": "measured_ebpf"} for a, b in ctl],
    )


def _busy(leaf: str, start: int, end: int) -> Row:
    return {"op_id": 0, "leaf": leaf, "start_ns": start, "end_ns": end}


def _leaves(database: duckdb.DuckDBPyConnection) -> dict[str, int]:
    query = (
        "SELECT category, attributed_ns FROM breakdown WHERE category LIKE 'ctl%' AND attributed_ns > 0 ORDER BY ALL"
    )
    return dict(timeline.rows(database, query))


def test_G12_equal_remainders_go_to_the_leaf_that_comes_first(database: duckdb.DuckDBPyConnection) -> None:
    occupancy = [
        _busy("ctl_schedule", 0, 300_000),
        _busy("ctl_wqe", 300_000, 330_000),
        _busy("ctl_doorbell", 330_000, 450_000),
    ]
    timeline.run(database, _trace(450_000, [], [(0, 125_830)]), occupancy)
    assert _leaves(database) == {"ctl_schedule": 83_887, "ctl_wqe": 8_389, "ctl_doorbell": 33_554}


def test_occupancy_under_compute_does_not_count(database: duckdb.DuckDBPyConnection) -> None:
    occupancy = [_busy("ctl_post", 0, 50), _busy("ctl_loop", 50, 60)]
    timeline.run(database, _trace(100, [(0, 40)], [(50, 80)]), occupancy)
    assert _leaves(database) == {"ctl_post": 15, "ctl_loop": 15}


def test_without_occupancy_ctl_cpu_stays_whole(database: duckdb.DuckDBPyConnection) -> None:
    timeline.run(database, _trace(100, [], [(10, 40)]), [])
    assert _leaves(database) == {"ctl_cpu": 30}


_span = st.tuples(st.integers(0, 60), st.integers(1, 30)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(_span, max_size=3),
    st.lists(_span, max_size=3),
    st.lists(st.tuples(st.sampled_from(["ctl_schedule", "ctl_loop", "ctl_post"]), _span), max_size=5),
)
def test_I2_leaves_add_up_to_ctl_cpu_in_proportion(
    database: duckdb.DuckDBPyConnection,
    compute: list[tuple[int, int]],
    ctl: list[tuple[int, int]],
    busy: list[tuple[str, tuple[int, int]]],
) -> None:
    timeline.run(database, _trace(100, compute, ctl), [_busy(leaf, *span) for leaf, span in busy])
    exposed = [t for t in range(100) if not any(a <= t < b for a, b in compute)]
    whole = sum(any(a <= t < b for a, b in ctl) for t in exposed)
    weights = {
        leaf: sum(a <= t < b for name, (a, b) in busy if name == leaf for t in exposed)
        for leaf in ("ctl_schedule", "ctl_loop", "ctl_post")
    }
    leaves = _leaves(database)
    assert sum(leaves.values()) == whole
    total = sum(weights.values())
    for leaf, weight in weights.items():
        assert total == 0 or abs(leaves.get(leaf, 0) - whole * weight / total) < 1
    unordered = "SELECT * FROM breakdown WHERE attributed_ns > inclusive_ns OR exclusive_ns > attributed_ns"
    assert timeline.rows(database, unordered) == []
