"""A rank that is swept in windows of steps: the same account as in one piece, which is the oracle's."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from pipeline.attribution import engine, windows
from pipeline.lake.layout import RunDir
from pipeline.model.run import RunConfig
from tests.attribution import oracle
from tests.attribution.build import build, rows
from tests.attribution.oracle import Trace
from tests.attribution.test_timeline_properties import traces

_SEGMENTS = "SELECT step, start_ns, end_ns, category, evidence FROM segments ORDER BY start_ns"


def _build(folder: Path, trace: Trace) -> RunDir:
    steps = [{"kind": "push_pop", "tid": 1, **row} for row in trace.steps]
    data = [{"kind": "push_pop", "text": "data_load", **row} for row in trace.data]
    return build(
        folder,
        gpu_ops=[{"rank": 0, **op} for op in trace.ops],
        nvtx=[{"rank": 0, **row} for row in steps + data],
        cuda_api=[{"rank": 0, **row} for row in trace.api],
        os_calls=[{"rank": 0, **row} for row in trace.os_calls],
        thread_states=trace.states,
        losses=trace.losses,
    )


# Each example is a run of its own: shrinking one that fails would take minutes.
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
@given(traces())
def test_windows_of_few_operations_give_the_oracles_segments(
    tmp_path_factory: pytest.TempPathFactory, trace: Trace
) -> None:
    trace = replace(trace, candidates=[])
    run_dir = _build(tmp_path_factory.mktemp("run"), trace)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "OPERATIONS", 1)
        engine.attribute(run_dir, RunConfig(), jobs=1)
    assert rows(run_dir, _SEGMENTS) == oracle.segments(trace)


def test_a_rank_in_windows_has_the_tables_of_one_in_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    ops, posts, completions = [], [], []
    at = 0
    for number in range(400):
        at += chance.randint(0, 40)
        kind = chance.choice(["compute", "compute", "copy", "comm"])
        end = at + chance.randint(0, 200)
        launch = chance.choice([None, at - chance.randint(0, 60)])
        ops.append(
            {"rank": 0, "start_ns": at, "end_ns": end, "op_class": kind, "stream": number % 3, "launch_start_ns": launch,
             "launch_tid": None if launch is None else 1}
        )  # fmt: skip
        if kind == "comm" and end > at:
            posts.append({"enter_ns": at, "exit_ns": at + (end - at) // 3, "wr_id": number, "bytes": 100})
            completions.append({"seen_ns": end, "wr_id": number})
    run_dir = build(
        tmp_path,
        gpu_ops=ops,
        nvtx=[
            {"start_ns": start, "end_ns": start + 900, "text": f"step_{start // 1000}"} for start in range(0, at, 1000)
        ],
        os_calls=[{"start_ns": start, "end_ns": start + 90, "name": "read"} for start in range(0, at, 700)],
        rdma_posts=posts,
        rdma_completions=completions,
    )
    tables = ("segments", "breakdown", "waits", "mfu", "rdma_messages", "run_facts", "findings")
    found = []
    for operations, files in ((windows.OPERATIONS, 1), (50, 8)):
        monkeypatch.setattr(windows, "OPERATIONS", operations)
        engine.attribute(run_dir, RunConfig(), jobs=1)
        assert len(run_dir.files("segments")) == files
        found.append([rows(run_dir, f"FROM {table} ORDER BY ALL") for table in tables])
    assert found[0] == found[1]
    assert {"ctl_post", "comm_unattributed"} & {row[2] for row in found[0][1]}
