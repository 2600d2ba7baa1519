"""How far figures may be off: clock error, probes, fitted intervals, host threads nobody watched; exact figures have none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.attribution import engine
from pipeline.lake.layout import RunDir
from pipeline.model.run import RunConfig
from tests.attribution import timeline
from tests.attribution.oracle import Trace
from tests.attribution.test_timeline_properties import _ordinary, traces

if TYPE_CHECKING:
    import duckdb

Rows = list[tuple[Any, ...]]
COMM = {"op_id": 0, "start_ns": 1_100, "end_ns": 1_900}


def bounds(folder: Path, **tables: list[dict[str, Any]]) -> dict[str, tuple[int, int, int, int]]:
    """Category → less, more, given, taken of a run with one step [1000, 2000), rank 0 on node n0."""
    connection = engine.connect(RunDir(folder), RunConfig(), threads=1)
    known = {"clock_pairs", "gpu_ops", "captures", "thread_states", "os_calls", "segments", "fits"}
    made = {
        "_step_order": "ordinal BIGINT, step BIGINT, start_ns BIGINT, end_ns BIGINT",
        "_shares": "ordinal BIGINT, category VARCHAR, evidence VARCHAR, attributed_ns BIGINT, inclusive_ns BIGINT",
        "_carried_messages": "op_id BIGINT, enter_ns BIGINT, exit_ns BIGINT, node VARCHAR, nic VARCHAR, chain BOOLEAN, "
        "rtt0_ns BIGINT, fetch_ns BIGINT",
        "this_rank": "rank BIGINT, node VARCHAR, pid BIGINT, nic VARCHAR",
    }
    for name in known:
        connection.execute(f"DROP VIEW IF EXISTS {name}")
    for name, columns in made.items():
        connection.execute(f"CREATE TEMP TABLE {name} ({columns})")
    work = ("_wait_windows", "_participants", "_operations", "_local_operations", "_links", "_ctl_shares")
    for name in (*work, *known):
        engine.ensure(connection, name)
    fixed = {
        "_step_order": [{"ordinal": 0, "step": 7, "start_ns": 1_000, "end_ns": 2_000}],
        "this_rank": [{"rank": 0, "node": "n0", "pid": 1}],
    }
    for name, rows in {**fixed, **tables}.items():
        for row in rows:
            row = {"ordinal": 0, **row} if name in ("_shares", "_ctl_shares") else row
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT INTO {name} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
    engine.run_queries(connection, ["_bounds"])
    found = connection.execute("SELECT category, less_ns, more_ns, given_ns, taken_ns FROM _bounds").fetchall()
    return {category: tuple(rest) for category, *rest in found}


def share(category: str, attributed: int, inclusive: int | None = None) -> dict[str, Any]:
    return {"category": category, "attributed_ns": attributed, "inclusive_ns": inclusive or attributed}


def post(enter: int, leave: int, **more: Any) -> dict[str, Any]:
    return {"op_id": 0, "enter_ns": enter, "exit_ns": leave, "node": "n0", "nic": "x", "fetch_ns": 0, **more}


def segment(start: int, end: int, category: str) -> dict[str, Any]:
    return {"rank": 0, "step": 7, "start_ns": start, "end_ns": end, "category": category}


def test_exact_figures_have_no_bounds(tmp_path: Path) -> None:
    assert bounds(tmp_path, _shares=[share("compute", 600), share("comm_unattributed", 400)]) == {}


FAR = {
    "_operations": [COMM],
    "_participants": [{"op_id": 0, "basis": "run_order"}],
    "clock_pairs": [{"node": "n0", "other_node": "n1", "error_ns": 50}],
    "segments": [
        segment(1_000, 1_120, "compute"),
        segment(1_120, 1_140, "rdma_transfer"),
        segment(1_140, 1_900, "ctl_cpu"),
    ],
}
LEAVES = dict.fromkeys(("ctl_cpu", "ctl_schedule", "ctl_loop", "ctl_post", "ctl_wqe", "ctl_doorbell"), (10, 0, 0, 0))


def test_who_came_last_may_have_waited_by_the_clock_error_and_what_got_those_instants_may_lose_them(
    tmp_path: Path,
) -> None:
    found = bounds(tmp_path, **FAR, _shares=[share("rdma_transfer", 20), share("ctl_cpu", 760)])
    assert found == {"wait_straggler": (0, 30, 0, 0), "rdma_transfer": (20, 0, 0, 0), **LEAVES}


def test_participants_of_one_node_have_one_clock(tmp_path: Path) -> None:
    assert bounds(tmp_path, **FAR, _local_operations=[{"op_id": 0}], _shares=[share("ctl_cpu", 760)]) == {}


def test_without_a_bound_for_the_clocks_all_of_an_operation_may_be_waiting(tmp_path: Path) -> None:
    tables = {**FAR, "clock_pairs": [], "_shares": [share("rdma_transfer", 20), share("ctl_cpu", 760)]}
    found = bounds(tmp_path, **tables)
    assert (found["wait_straggler"], found["ctl_loop"]) == ((0, 780, 0, 0), (760, 0, 0, 0))


def test_a_known_wait_ends_within_the_clock_error_of_its_pair(tmp_path: Path) -> None:
    window = {"op_id": 0, "kind": "straggler", "start_ns": 1_100, "end_ns": 1_130, "clock_error_ns": 40,
              "within_clock_error": False}  # fmt: skip
    found = bounds(tmp_path, **FAR, _wait_windows=[window], _shares=[share("rdma_transfer", 20), share("ctl_cpu", 760)])
    # It may be shorter by 40, then whatever comes next has it; or longer by 50: 10 of the wire's, 40 of the proxy's.
    assert found["wait_straggler"] == (40, 50, 40, 0)
    assert (found["rdma_transfer"], found["ctl_loop"]) == ((10, 0, 0, 0), (40, 0, 0, 0))


PROBED = {
    "_carried_messages": [post(1_100, 1_200), post(1_300, 1_400)],
    "_ctl_shares": [share("ctl_post", 150, 200), share("ctl_loop", 90, 100), share("ctl_schedule", 8, 10)],
}


def test_a_calibrated_probe_leaves_its_cost_between_post_and_loop(tmp_path: Path) -> None:
    """Two posts of 25 of 100 ns; the two calls cost the thread 40 in all between its posts, and 20 at the ends."""
    capture = {"kind": "ebpf_csv", "status": "ok", "probe_cost_ns": 25, "probe_exit_ns": 5, "probe_call_ns": 20}
    found = bounds(tmp_path, **PROBED, captures=[capture, {"kind": "nsys_sqlite", "status": "ok"}])
    assert found == {"ctl_post": (38, 38, 0, 0), "ctl_loop": (36, 58, 0, 0), "ctl_schedule": (1, 1, 0, 0)}


def test_where_the_sides_of_the_cost_are_not_known_flights_may_have_begun_earlier(tmp_path: Path) -> None:
    found = bounds(
        tmp_path,
        **PROBED,
        captures=[{"kind": "ebpf_csv", "status": "ok", "probe_cost_ns": 25}],
        _shares=[share("net_excess", 9)],
    )
    assert found["ctl_post"] == (38, 9, 38, 9)
    assert found["ctl_loop"] == (90, 38, 0, 0)


def test_posts_and_loop_of_an_uncalibrated_probe_are_upper_bounds(tmp_path: Path) -> None:
    found = bounds(tmp_path, **PROBED, captures=[{"kind": "ebpf_csv", "status": "ok"}])
    assert found["ctl_post"] == (150, 0, 150, 0)
    assert found["ctl_loop"] == (90, 150, 0, 0)


def test_transfer_goes_with_the_interval_of_a_fitted_beta_and_takes_from_those_after_it(tmp_path: Path) -> None:
    fit = {"node": "n0", "nic": "x", "beta_source": "fit", "beta_bytes_per_s": 50e9, "beta_lo": 40e9, "beta_hi": 62.5e9}
    tables = {
        "_carried_messages": [post(1_100, 1_200)],
        "_shares": [share("rdma_transfer", 80, 100), share("net_excess", 9)],
    }
    assert bounds(tmp_path, **tables, fits=[fit]) == {"rdma_transfer": (20, 9, 20, 9)}
    assert bounds(tmp_path, **tables, fits=[{**fit, "beta_source": "run_toml"}]) == {}


def test_base_round_trips_are_known_to_the_interval_of_a_fitted_one_and_a_chain_to_nine_in_ten(tmp_path: Path) -> None:
    found = bounds(
        tmp_path,
        _carried_messages=[post(1_100, 1_200, chain=True, rtt0_ns=100), post(1_300, 1_400, chain=False, rtt0_ns=100)],
        _links=[{"node": "n0", "nic": "x", "rtt0_lo_ns": 90, "rtt0_hi_ns": 103}],
        _shares=[share("blocking_rtt", 100), share("net_latency", 70), share("net_excess", 30)],
    )
    assert found == {"blocking_rtt": (20, 3, 10, 3), "net_latency": (10, 13, 10, 3)}


def test_a_modelled_time_to_fetch_may_be_nothing_or_twice_as_much(tmp_path: Path) -> None:
    found = bounds(tmp_path, _shares=[share("ctl_fetch", 20, 50), share("net_latency", 40)])
    assert found == {"ctl_fetch": (20, 40, 20, 40)}


@pytest.mark.parametrize(
    ("states", "calls", "expected"),
    [
        (True, True, {}),
        (False, True, {"host_launch": (100, 0), "host_other": (0, 1_000)}),
        (True, False, {"host_launch": (100, 0), "host_other": (30, 1_000), "host_data": (0, 1_000)}),
    ],
    ids=["both", "no switches", "no OS calls"],
)
def test_host_leaves_are_exact_only_where_the_thread_was_watched(
    tmp_path: Path, states: bool, calls: bool, expected: dict[str, tuple[int, int]]
) -> None:
    found = bounds(
        tmp_path,
        _shares=[share("host_launch", 100), share("host_other", 30), share("host_sync", 20)],
        gpu_ops=[{"start_ns": 1_000, "launch_tid": 5}],
        thread_states=[{"pid": 1, "tid": 5, "start_ns": 0, "end_ns": 9, "state": "running"}] * states,
        os_calls=[{"tid": 5, "start_ns": 0, "end_ns": 9, "name": "poll"}] * calls,
    )
    assert {category: (less, more) for category, (less, more, _, _) in found.items()} == expected


_error = st.integers(0, 40)


@_ordinary
@given(
    traces(),
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["wait_straggler", "rdma_transfer", "ctl_cpu", "net_excess", "host_launch", "host_data"]),
            _error, _error, _error, _error,
        ),
        max_size=6,
        unique_by=lambda row: row[:2],
    ),
)  # fmt: skip
def test_bounds_hold_the_figure_and_the_step_on_random_timelines(
    database: duckdb.DuckDBPyConnection, trace: Trace, errors: Rows
) -> None:
    timeline.run(database, trace)
    plain = database.execute("SELECT * EXCLUDE (lo_ns, hi_ns) FROM breakdown ORDER BY ALL").fetchall()
    try:
        for row in errors:
            database.execute("INSERT INTO _bounds VALUES (?, ?, ?, ?, ?, ?)", row)
        engine.run_queries(database, ["breakdown"])
    finally:
        database.execute("DELETE FROM _bounds")
    held = "SELECT * EXCLUDE (lo_ns, hi_ns) FROM breakdown WHERE inclusive_ns > 0 ORDER BY ALL"
    assert plain == database.execute(held).fetchall()
    wrong = """SELECT * FROM breakdown WHERE NOT (0 <= lo_ns AND lo_ns <= attributed_ns AND attributed_ns <= hi_ns)
        OR inclusive_ns = 0 AND hi_ns = 0"""
    assert database.execute(wrong).fetchall() == []
    # What one gains another must be able to lose: with all others at their least, the step is still full.
    uneven = """SELECT b.step, b.category FROM breakdown AS b JOIN steps USING (step)
        JOIN (SELECT step, sum(lo_ns) AS lo_ns, sum(hi_ns) AS hi_ns FROM breakdown GROUP BY step) AS s USING (step)
        WHERE NOT (s.lo_ns <= end_ns - start_ns AND end_ns - start_ns <= s.hi_ns)
            OR b.hi_ns + s.lo_ns - b.lo_ns > end_ns - start_ns"""
    assert database.execute(uneven).fetchall() == []


def test_the_sample_incident_has_bounds_on_its_posts(tmp_path: Path) -> None:
    import pipeline
    from tests.conftest import ROOT

    pipeline.ingest([str(ROOT / "sample_traces" / "moe-control-plane")], tmp_path, run="r", jobs=1)
    with pipeline.connect(tmp_path) as connection:
        rows = connection.execute(
            """SELECT category, bool_and(lo_ns < attributed_ns AND attributed_ns < hi_ns), bool_and(lo_ns = hi_ns)
               FROM breakdown WHERE category IN ('ctl_post', 'compute') AND attributed_ns > 0 GROUP BY category ORDER BY category"""
        ).fetchall()
    assert rows == [("compute", False, True), ("ctl_post", True, False)]
