"""Bounds of inferred figures: clock error, the probe's cost, the interval of a fitted beta; exact figures have none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.lake.layout import open_connection
from pipeline.model import library

STEPS = [(0, 7, 1_000, 2_000), (1, 8, 2_000, 3_000)]  # ordinal, step, start, end
Rows = list[tuple[Any, ...]]


def bounds(*, waits: Rows = [], posts: Rows = [], probes: Rows = [], fits: Rows = []) -> set[tuple[Any, ...]]:  # noqa: B006
    connection = open_connection()
    for name, columns, rows in (
        ("_step_order", "ordinal BIGINT, step BIGINT, start_ns BIGINT, end_ns BIGINT", STEPS),
        ("_wait_windows", "op_id BIGINT, kind VARCHAR, start_ns BIGINT, clock_error_ns BIGINT, within_clock_error BOOLEAN", waits),
        ("_carried_messages", "op_id BIGINT, enter_ns BIGINT, exit_ns BIGINT, node VARCHAR, nic VARCHAR", posts),
        ("captures", "kind VARCHAR, status VARCHAR, probe_cost_ns BIGINT, probe_call_ns BIGINT", probes),
        ("fits", "node VARCHAR, nic VARCHAR, beta_source VARCHAR, beta_bytes_per_s DOUBLE, beta_lo DOUBLE, beta_hi DOUBLE", fits),
    ):  # fmt: skip
        connection.execute(f"CREATE TABLE {name} ({columns})")
        if rows:
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    connection.execute(library.sql("_bounds"))
    return set(connection.execute("FROM _bounds").fetchall())


def test_exact_figures_have_no_bounds() -> None:
    assert bounds() == set()


def test_each_wait_is_known_to_the_clock_error_of_its_pair() -> None:
    waits = [(0, "straggler", 1_100, 30, False), (1, "straggler", 1_500, 20, False), (2, "sender", 2_100, 0, False),
             (3, "straggler", 2_200, 90, True)]  # fmt: skip
    assert bounds(waits=waits) == {(0, "wait_straggler", 50, 50, 0, 0), (1, "wait_sender", 0, 0, 0, 0)}


def test_a_calibrated_probe_leaves_its_cost_as_a_part_of_the_posts() -> None:
    posts = [(0, 1_100, 1_200, "n", "x"), (0, 1_300, 1_400, "n", "x")]
    found = bounds(posts=posts, probes=[("ebpf_csv", "ok", 25, 300), ("nsys_sqlite", "ok", None, None)])
    inside = {(0, leaf, 0, 0, 0.25, 0.25) for leaf in ("ctl_post", "ctl_wqe", "ctl_doorbell")}
    # What the two calls cost the thread lies between its posts.
    assert found == inside | {(0, leaf, 600, 0, 0, 0) for leaf in ("ctl_loop", "ctl_cpu")}


def test_posts_of_an_uncalibrated_probe_are_upper_bounds() -> None:
    found = bounds(posts=[(0, 1_100, 1_200, "n", "x")], probes=[("ebpf_csv", "ok", None, None)])
    leaves = ("ctl_post", "ctl_wqe", "ctl_doorbell", "ctl_loop", "ctl_cpu")
    assert found == {(0, leaf, None, 0, 0, 0) for leaf in leaves}


def test_transfer_goes_with_the_interval_of_a_fitted_beta() -> None:
    posts = [(0, 1_100, 1_200, "n", "x")]
    found = bounds(posts=posts, fits=[("n", "x", "fit", 50e9, 40e9, 62.5e9)])
    rounded = {(*row[:4], round(row[4], 3), round(row[5], 3)) for row in found}
    assert rounded == {(0, "rdma_transfer", 0, 0, 0.2, 0.25), (1, "rdma_transfer", 0, 0, 0.2, 0.25)}
    given = bounds(posts=posts, fits=[("n", "x", "run_toml", 50e9, None, None)])
    assert given == set()


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
