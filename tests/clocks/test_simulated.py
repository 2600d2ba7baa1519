"""Simulated captures with known clocks, through ingest: offsets and waits within the stated bounds, culprits named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.ingest import ingest
from pipeline.lake.layout import RunDir
from pipeline.simulate import simulate
from tests.clocks.cluster import query


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("simulated")
    out = simulate("straggler", folder / "captures", nodes=3, gpus_per_node=2, steps=2, seed=3, scale=0.004)
    ingest([out], folder / "lake", run="r", config=out / "run.toml", jobs=1)
    return RunDir(folder / "lake" / "run=r"), out, json.loads((out / "truth.json").read_text())


def test_every_nodes_offset_is_recovered_within_its_error(run: tuple[RunDir, Path, dict[str, Any]]) -> None:
    run_dir, _, truth = run
    true = {clock["node"]: (clock["offset_ns"], clock["drift_ppb"]) for clock in truth["clocks"]}
    assert any(abs(offset) > 50_000 for offset, _ in true.values())
    epoch = 1_768_446_000_000_000_000
    rows = query(run_dir, "SELECT node, offset_ns, error_ns, at_ns, status FROM clock_offsets ORDER BY node")
    assert [(row[0], row[4]) for row in rows] == [("node00", "reference"), ("node01", "fitted"), ("node02", "fitted")]
    for node, offset, error, at, _ in rows[1:]:
        ahead = true[node][0] + (at - true[node][0] - epoch) * true[node][1] * 1e-9
        assert abs(offset + ahead) <= error


def test_every_wait_is_true_within_its_clock_error_and_the_culprit_of_the_delays_is_named(
    run: tuple[RunDir, Path, dict[str, Any]],
) -> None:
    run_dir, out, truth = run
    # All rows of one collective together are the wait until the last arrival, which is the late rank's.
    found = query(
        run_dir,
        "SELECT rank, min(start_ns), sum(wait_ns), max(clock_error_ns) FROM (SELECT *, sum(fresh::INTEGER) OVER "
        "(PARTITION BY rank ORDER BY start_ns) AS nth FROM (SELECT *, start_ns > 100000 + coalesce(lag(end_ns) OVER "
        "(PARTITION BY rank ORDER BY start_ns), 0) AS fresh FROM waits WHERE kind = 'straggler')) GROUP BY rank, nth ORDER BY 1, 2",
    )
    true = query(
        run_dir,
        f"SELECT rank, start_ns, end_ns - start_ns, culprit_rank FROM read_parquet('{out}/truth_waits.parquet') ORDER BY 1, 2",
    )
    late = truth["culprit_rank"]
    found = [row for row in found if row[0] != late]
    assert [row[0] for row in found] == [row[0] for row in true]
    for (_, _, wait, error), (_, _, length, culprit) in zip(found, true, strict=True):
        assert culprit == late
        # A nanosecond more: the node's clock drifts, and so does what it measures.
        assert abs(wait - length) <= error + 1
    charged = dict(query(run_dir, "SELECT culprit_rank, sum(delay_ns) FROM delay_cost GROUP BY ALL"))
    assert max(charged, key=lambda rank: charged[rank]) == late
