"""Rows of a capture come out sorted, whatever the order of batches and tables; property against sorted()."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.lake import writer as module
from pipeline.lake.layout import RunDir
from pipeline.lake.writer import CaptureWriter
from tests.toy import batch

ROWS = st.lists(st.tuples(st.sampled_from([None, 0, 1]), st.integers(-5, 5)), max_size=8)


def written(run_dir: RunDir, table: str) -> list[dict[str, Any]]:
    return list(pq.read_table(run_dir.file(table, "c")).to_pylist())


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(ROWS, max_size=5),
    group_rows=st.sampled_from([1, 3, 100]),
    carry_bytes=st.sampled_from([0, 10**9]),
    groups=st.sampled_from([1, 2, 64]),
)
def test_rows_come_out_in_the_tables_order_on_every_path(
    batches: list[list[tuple[int | None, int]]], group_rows: int, carry_bytes: int, groups: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "GROUP_ROWS", group_rows)
        patch.setattr(module, "_MAX_CARRY_BYTES", carry_bytes)
        patch.setattr(module, "_MAX_GROUPS", groups)
        run_dir = RunDir(Path(folder))
        with CaptureWriter(run_dir, "c") as writer:
            for rows in batches:
                writer.add("os_calls", batch("os_calls", [{"rank": r, "start_ns": t} for r, t in rows]))
                writer.add("log_events", batch("log_events", [{"node": "n", "code": "c"} for _ in rows]))
            counts = writer.finish()
        flat = [row for rows in batches for row in rows]
        assert ({"os_calls": len(flat), "log_events": len(flat)} if flat else {}) == counts
        if flat:
            expected = sorted(flat, key=lambda row: (row[0] is not None, row[0] or 0, row[1]))
            assert expected == [(row["rank"], row["start_ns"]) for row in written(run_dir, "os_calls")]
        assert list((run_dir.path / "_work").iterdir()) == []


def test_select_lists_change_columns_on_the_way(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path)
    select = {"nvtx": {"rank": "NULL", "start_ns": "plus(start_ns)"}}
    with CaptureWriter(run_dir, "c", select=select, macros=("CREATE MACRO plus(x) AS x + 1",)) as writer:
        writer.add("nvtx", batch("nvtx", [{"rank": 0, "start_ns": 5}]))
        writer.finish()
    expected = [(None, 6)]
    assert expected == [(row["rank"], row["start_ns"]) for row in written(run_dir, "nvtx")]


@pytest.mark.parametrize("carry_bytes", [0, 10**9])
@pytest.mark.parametrize("encoded", [(True, True, True), (True, False, True), (False, True, False)])
def test_text_may_come_as_dictionaries_that_differ_between_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoded: tuple[bool, ...], carry_bytes: int
) -> None:
    monkeypatch.setattr(module, "_MAX_CARRY_BYTES", carry_bytes)
    run_dir = RunDir(tmp_path)
    with CaptureWriter(run_dir, "c", threads=2) as writer:
        for part, names in zip(encoded, (["a", "b"], ["c", None], ["b", "a"]), strict=True):
            plain = batch("os_calls", [{"rank": 0, "start_ns": 10 - ord(name or "z"), "name": name} for name in names])
            at = plain.schema.get_field_index("name")
            name = plain.column("name").dictionary_encode() if part else plain.column("name")
            writer.add("os_calls", plain.set_column(at, "name", name))
        assert writer.finish() == {"os_calls": 6}
    assert [row["name"] for row in written(run_dir, "os_calls")] == [None, "c", "b", "b", "a", "a"]
    assert pq.read_schema(run_dir.file("os_calls", "c")).field("name").type == pa.string()


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


def test_contiguous_tables_are_written_behind_with_the_same_rows(tmp_path: Path) -> None:
    def load(name: str, **options: Any) -> dict[str, list[dict[str, Any]]]:
        run_dir = RunDir(tmp_path / name)
        with CaptureWriter(run_dir, "c", **options) as writer:
            for table in ("os_calls", "cuda_api", "nvtx"):
                for start in (30, 10, 20):
                    writer.add(
                        table, batch(table, [{"rank": 0, "start_ns": start}, {"rank": 1, "start_ns": start + 1}])
                    )
            assert writer.finish() == {"os_calls": 6, "cuda_api": 6, "nvtx": 6}
        return {table: written(run_dir, table) for table in ("os_calls", "cuda_api", "nvtx")}

    assert load("behind", contiguous=True, threads=2) == load("at_the_end")


def test_a_table_that_comes_back_is_refused_where_tables_were_said_to_be_contiguous(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="contiguous"),
        CaptureWriter(RunDir(tmp_path), "c", contiguous=True, threads=2) as writer,
    ):
        for table in ("os_calls", "cuda_api", "os_calls"):
            writer.add(table, batch(table, [{"rank": 0, "start_ns": 1}]))
    assert list(tmp_path.rglob("*.parquet")) == []
