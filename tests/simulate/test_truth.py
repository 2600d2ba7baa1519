"""The pipeline's account of a simulated run against the simulator's own: two programs that share no code."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pipeline.ingest import attribute, ingest
from pipeline.model.categories import BY_NAME
from pipeline.simulate import SCENARIOS, simulate

_NETWORK_PERCENT, _OTHER_PERCENT = 3, 1
_ROUNDED_NS, _RATES = 20, 1e-5
"""What bounds leave out: times are whole nanoseconds, and clocks run at rates that differ by some parts in a million."""
_NEEDS_TWO_GPUS = ("incast", "nic-imbalance", "qp-thrash", "straggler")
_ALSO_WITHOUT_EBPF = (
    "moe-control-plane",
    "decode-stop-and-wait",
    "proxy-starved",
    "gpu-initiated-fallback",
    "incast",
    "data-stall",
)
"""Scenarios whose answer without eBPF is told apart: the proxy, the blocking sender, the network and the host."""

_NAMED: dict[str, dict[str, str]] = {
    "straggler": {"straggler": "rank", "launch_bound": "rank"},
    "proxy-starved": {"proxy_starved": "rank", "straggler": "rank"},
    "incast": {"incast": "rank"},
    "data-stall": {"data_bound": "node", "straggler": "node"},
    "nic-imbalance": {"nic_imbalance": "nic"},
}
"""What findings must name: the culprit's rank, node or NIC."""
_DIFFERENCES = """
WITH truth AS (SELECT rank, step, category, true_ns FROM read_parquet($truth)),
account AS (
    SELECT rank, step, category, sum(attributed_ns)::BIGINT AS ns
    FROM read_parquet($breakdown) WHERE category <> 'ctl_cpu' GROUP BY ALL
),
lengths AS (SELECT rank, step, sum(true_ns) AS ns FROM truth GROUP BY ALL)
SELECT category, rank, step, 100 * (coalesce(a.ns, 0) - coalesce(t.true_ns, 0)) / l.ns AS percent
FROM truth AS t FULL JOIN account AS a USING (rank, step, category) JOIN lengths AS l USING (rank, step)
"""


_OUTSIDE = """
WITH truth AS (SELECT rank, step, category, true_ns FROM read_parquet($truth)),
account AS (
    SELECT rank, step, category, sum(lo_ns)::BIGINT AS lo_ns, sum(hi_ns)::BIGINT AS hi_ns
    FROM read_parquet($breakdown) GROUP BY ALL
),
lengths AS (SELECT rank, step, sum(true_ns) AS ns FROM truth GROUP BY ALL)
SELECT category, rank, step, coalesce(t.true_ns, 0), coalesce(a.lo_ns, 0), coalesce(a.hi_ns, 0)
FROM truth AS t FULL JOIN account AS a USING (rank, step, category) JOIN lengths AS l USING (rank, step)
WHERE greatest(coalesce(a.lo_ns, 0) - coalesce(t.true_ns, 0), coalesce(t.true_ns, 0) - coalesce(a.hi_ns, 0))
    > $rounded + $rates * l.ns
"""


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_every_category_of_every_rank_and_step_is_what_truly_happened(name: str, tmp_path: Path) -> None:
    scale = 0.05 if name.startswith("decode") else 0.004
    gpus = 2 if name in _NEEDS_TWO_GPUS else 1
    run = simulate(name, tmp_path / "run", nodes=2, gpus_per_node=gpus, steps=3, seed=11, scale=scale)

    assert _wrong(run, tmp_path / "lake") == {}
    assert _outside(run, tmp_path / "lake") == []
    truth = json.loads((run / "truth.json").read_text())
    found = _findings(tmp_path / "lake")
    assert set(truth["expected_findings"]) <= found
    allowed = {*truth["expected_findings"], *truth["consequences"]}
    assert found <= allowed
    assert _misnamed(name, tmp_path / "lake", truth) == []

    if name in _ALSO_WITHOUT_EBPF:
        # Without a source the same time is told more coarsely, and nothing that another source measured grows (I7).
        bare = shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("ebpf.csv"))
        ingest([str(bare)], tmp_path / "bare_lake", jobs=1)
        assert _grown(tmp_path / "lake", tmp_path / "bare_lake") == []
        assert _findings(tmp_path / "bare_lake") <= allowed


@pytest.mark.parametrize(
    ("name", "kept"),
    [("moe-control-plane", "probe_cost_ns"), ("decode-stop-and-wait", "")],
    ids=["cost in one number", "no calibration"],
)
def test_the_truth_lies_within_the_bounds_whatever_is_known_of_the_probes(name: str, kept: str, tmp_path: Path) -> None:
    scale = 0.05 if name.startswith("decode") else 0.004
    run = simulate(name, tmp_path / "run", nodes=2, gpus_per_node=1, steps=2, seed=11, scale=scale)
    for path in run.rglob("ebpf.csv"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if ",probe_" not in line or (kept and f",{kept}," in line)))
    ingest([str(run)], tmp_path / "lake", jobs=1)
    assert _outside(run, tmp_path / "lake") == []


def _outside(run: Path, lake: Path) -> list[tuple[str, int, int, int, int, int]]:
    """Cells whose truth lies beyond their bounds: (category, rank, step, truth, lo, hi)."""
    with duckdb.connect() as database:
        given = {"truth": f"{run}/truth.parquet", "breakdown": f"{lake}/run=*/breakdown/*.parquet"}
        return database.execute(_OUTSIDE, {**given, "rounded": _ROUNDED_NS, "rates": _RATES}).fetchall()


def test_counters_and_logs_move_no_time(tmp_path: Path) -> None:
    run = simulate("proxy-starved", tmp_path / "run", nodes=2, gpus_per_node=1, steps=2, seed=11, scale=0.004)
    bare = shutil.copytree(run, tmp_path / "bare", ignore=shutil.ignore_patterns("counters.csv", "*.log"))
    for source, lake in ((run, "lake"), (bare, "bare_lake")):
        ingest([str(source)], tmp_path / lake, jobs=1)
    assert _breakdown(tmp_path / "lake") == _breakdown(tmp_path / "bare_lake")


_TABLES = ("thread_states", "rdma_posts", "rdma_completions", "rdma_qps", "cuda_api", "comm_ops")


def test_each_source_that_is_taken_from_a_full_capture_makes_the_account_coarser_and_no_other_larger(
    tmp_path: Path,
) -> None:
    """I7. ctl_cpu counts with its leaves, host leaves with each other; both ranks, all steps."""
    run = simulate("moe-control-plane", tmp_path / "run", nodes=2, gpus_per_node=1, steps=2, seed=11, scale=0.004)
    ingest([str(run)], tmp_path / "lake", jobs=1)
    (full,) = (tmp_path / "lake").glob("run=*")
    for table in _TABLES:
        assert (full / table).is_dir(), table
        bare = shutil.copytree(tmp_path / "lake", tmp_path / f"without_{table}")
        shutil.rmtree(bare / full.name / table)
        attribute(bare, jobs=1)
        assert _grown(tmp_path / "lake", bare) == [], table


def _breakdown(lake: Path) -> list[tuple[int, int, str, int]]:
    with duckdb.connect() as database:
        return database.execute(
            "SELECT rank, step, category, sum(attributed_ns) FROM read_parquet($1) GROUP BY ALL ORDER BY ALL",
            [f"{lake}/run=*/breakdown/*.parquet"],
        ).fetchall()


def _grown(full: Path, bare: Path) -> list[tuple[int, int, str, int, int]]:
    """Cells that are larger without eBPF than with it, and may not be: (rank, step, what, with, without), ns."""

    def cells(lake: Path) -> dict[tuple[int, int, str], int]:
        found: dict[tuple[int, int, str], int] = defaultdict(int)
        for rank, step, category, ns in _breakdown(lake):
            # Host leaves may trade among each other: who was off-CPU is then not known.
            what = "host" if BY_NAME[category].group in ("host", "idle") else BY_NAME[category].leaf_of or category
            found[rank, step, what] += ns
            found[rank, step, "all"] += ns
        return found

    before, after = cells(full), cells(bare)
    grown = [(*key, before[key], ns) for key, ns in after.items() if ns > before[key] and key[2] != "comm_unattributed"]
    lost = [(*key, ns, after[key]) for key, ns in before.items() if key[2] == "all" and after[key] != ns]
    return grown + lost


def test_a_loss_of_records_becomes_a_gap_in_the_trace_and_moves_nothing_else(tmp_path: Path) -> None:
    sizes = {"nodes": 2, "gpus_per_node": 1, "steps": 3, "scale": 0.004}
    run = simulate("moe-control-plane", tmp_path / "run", seed=11, lose=0.2, **sizes)
    truth = json.loads((run / "truth.json").read_text())

    assert [each["node"] for each in truth["lost"]] == ["node01"]
    assert _wrong(run, tmp_path / "lake") == {}
    assert _outside(run, tmp_path / "lake") == []
    with duckdb.connect() as database:
        gap = database.execute(
            "SELECT DISTINCT rank, step FROM read_parquet($1) WHERE category = 'trace_gap'", [f"{run}/truth.parquet"]
        )
        assert gap.fetchall() == [(1, 1)]


@pytest.mark.parametrize(
    ("name", "gpus", "scale"), [("nic-imbalance", 6, 0.003), ("proxy-starved", 3, 0.003), ("decode-fixed", 2, 0.002)]
)
def test_more_gpus_or_smaller_steps_bring_no_finding_of_another_cause(
    name: str, gpus: int, scale: float, tmp_path: Path
) -> None:
    """A third of the ranks share a NIC; a proxy has fewer messages than it is off its core for; a step is short."""
    run = simulate(name, tmp_path / "run", nodes=2, gpus_per_node=gpus, steps=2, seed=11, scale=scale)
    ingest([str(run)], tmp_path / "lake", jobs=1)
    truth = json.loads((run / "truth.json").read_text())
    found = _findings(tmp_path / "lake")
    assert set(truth["expected_findings"]) <= found <= {*truth["expected_findings"], *truth["consequences"]}
    assert _misnamed(name, tmp_path / "lake", truth) == []


def _misnamed(name: str, lake: Path, truth: dict[str, Any]) -> list[tuple[str, int, str, str]]:
    """(code, rank, node, NIC) of the findings that name another than the scenario's culprit."""
    names = _NAMED.get(name, {})
    files = [str(path) for path in lake.glob("run=*/findings/*.parquet")]
    if not names or not files:
        return []
    with duckdb.connect() as database:
        rows = database.execute("SELECT code, rank, node, nic FROM read_parquet($1)", [files]).fetchall()
    named = [(row, dict(zip(("rank", "node", "nic"), row[1:], strict=True))) for row in rows]
    return [row for row, who in named if row[0] in names and who[names[row[0]]] != truth[f"culprit_{names[row[0]]}"]]


def _findings(lake: Path) -> set[str]:
    """Codes of the findings of the lake's one run; a run without any has no file."""
    files = [str(path) for path in lake.glob("run=*/findings/*.parquet")]
    if not files:
        return set()
    with duckdb.connect() as database:
        return {row[0] for row in database.execute("SELECT code FROM read_parquet($1)", [files]).fetchall()}


def _wrong(run: Path, lake: Path) -> dict[tuple[str, int, int], float]:
    """Cells of the account that are further from the truth than allowed, in per cent of the step."""
    ingest([str(run)], lake, jobs=1)
    with duckdb.connect() as database:
        files = {"truth": f"{run}/truth.parquet", "breakdown": f"{lake}/run=*/breakdown/*.parquet"}
        rows = database.execute(_DIFFERENCES, files).fetchall()
    truth = json.loads((run / "truth.json").read_text())
    ranks, steps = truth["nodes"] * truth["gpus_per_node"], truth["steps"]
    assert {(rank, step) for _, rank, step, _ in rows} == {(r, s) for r in range(ranks) for s in range(steps)}
    return {
        (category, rank, step): round(percent, 2)
        for category, rank, step, percent in rows
        if abs(percent) > (_NETWORK_PERCENT if BY_NAME[category].group in ("network", "comm") else _OTHER_PERCENT)
    }
