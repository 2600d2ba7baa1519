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
    late = truth["culprit_rank"]
    # All rows of one collective together are the wait until the last arrival.
    rows = query(
        run_dir,
        f"""WITH operations AS (
            SELECT rank, start_ns, end_ns, row_number() OVER (PARTITION BY rank ORDER BY start_ns) - 1 AS operation
            FROM gpu_ops WHERE op_class = 'comm'
        ), found AS (
            SELECT o.rank, o.operation, sum(w.wait_ns) AS wait_ns, max(w.clock_error_ns) AS error_ns
            FROM waits AS w JOIN operations AS o
                ON o.rank = w.rank AND w.start_ns >= o.start_ns AND w.start_ns < o.end_ns
            WHERE w.kind = 'straggler' GROUP BY ALL
        )
        SELECT t.culprit_rank, t.end_ns - t.start_ns, coalesce(f.wait_ns, 0), coalesce(f.error_ns, 0)
        FROM read_parquet('{out}/truth_waits.parquet') AS t LEFT JOIN found AS f USING (rank, operation)
        ORDER BY t.rank, t.operation""",
    )
    worst = max(bound for (bound,) in query(run_dir, "SELECT max(error_ns) FROM clock_pairs"))
    assert max(rows, key=lambda row: row[1])[0] == late
    for _, true, wait, error in rows:
        # A nanosecond more: the node's clock drifts, and so does what it measures.
        assert abs(wait - true) <= (error or worst) + 1
    charged = dict(query(run_dir, "SELECT culprit_rank, sum(delay_ns) FROM delay_cost GROUP BY ALL"))
    assert max(charged, key=lambda rank: charged[rank]) == late
