"""Rows of a capture come out sorted, whatever the order of batches and tables; property against sorted()."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lake.layout import RunDir
from pipeline.lake.writer import CaptureWriter
from tests.toy import batch

ROWS = st.lists(st.tuples(st.sampled_from([None, 0, 1]), st.integers(-5, 5)), max_size=8)


def written(run_dir: RunDir, table: str) -> list[dict[str, Any]]:
    return list(pq.read_table(run_dir.file(table, "c")).to_pylist())


@settings(max_examples=40, deadline=None)
@given(st.lists(ROWS, max_size=4))
def test_rows_come_out_in_the_tables_order(batches: list[list[tuple[int | None, int]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = RunDir(Path(folder))
        with CaptureWriter(run_dir, "c") as writer:
            for rows in batches:
                writer.add("os_calls", batch("os_calls", [{"rank": r, "start_ns": t} for r, t in rows]))
                writer.add("nvtx", batch("nvtx", [{"rank": 0, "start_ns": t} for _, t in rows]))
            counts = writer.finish()
        flat = [row for rows in batches for row in rows]
        assert (len(flat) or None) == counts.get("os_calls")
        if flat:
            key = sorted(flat, key=lambda row: (row[0] is not None, row[0] or 0, row[1]))
            assert key == [(row["rank"], row["start_ns"]) for row in written(run_dir, "os_calls")]
            assert sorted(t for _, t in flat) == [row["start_ns"] for row in written(run_dir, "nvtx")]
        assert list((run_dir.path / "_work").iterdir()) == []


def test_select_lists_change_columns_on_the_way(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    with CaptureWriter(run_dir, "c") as writer:
        writer.add("counters", batch("counters", [{"node": "n", "device": "d", "counter": "c", "at_ns": 5}]))
        writer.finish({"counters": "node, device, counter, plus(at_ns) AS at_ns"}, ("CREATE MACRO plus(x) AS x + 1",))
    assert [row["at_ns"] for row in written(run_dir, "counters")] == [6]


def test_a_failure_leaves_no_file(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    with pytest.raises(ZeroDivisionError), CaptureWriter(run_dir, "c") as writer:
        writer.add("nvtx", batch("nvtx", [{"rank": 0, "start_ns": 1}]))
        writer.finish()
        raise ZeroDivisionError
    assert run_dir.files("nvtx") == []


def test_a_batch_in_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nvtx: columns"), CaptureWriter(RunDir(tmp_path), "c") as writer:
        writer.add("nvtx", batch("os_calls", [{"rank": 0, "start_ns": 1}]))
