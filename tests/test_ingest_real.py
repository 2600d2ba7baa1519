"""Real captures through ingest: what is in the lake, what is refused, and that twice is once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.ingest import ingest


def rows(lake: Path, query: str) -> list[tuple[Any, ...]]:
    with pipeline.connect(lake) as connection:
        return list(connection.execute(query).fetchall())


def test_two_real_ranks_are_one_run_and_twice_is_once(shared: Path, tmp_path: Path) -> None:
    files = [shared / f"real/h200/rank{rank}_new.sqlite" for rank in (0, 1)]
    report = ingest(files, tmp_path / "lake", run="nccl", jobs=2, attribute=False)
    assert (len(report.read), report.unusable) == (2, ())
    expected = [(0, 732, "NVIDIA H200"), (1, 735, "NVIDIA H200")]
    assert expected == rows(tmp_path / "lake", "SELECT rank, pid, gpu_name FROM ranks ORDER BY rank")
    [(unordered,)] = rows(
        tmp_path / "lake",
        "SELECT count(*) FROM (SELECT start_ns < lag(start_ns) OVER (PARTITION BY rank ORDER BY start_ns) AS x, * "
        "FROM gpu_ops) WHERE x",
    )
    assert unordered == 0
    again = ingest(files, tmp_path / "lake", run="nccl", jobs=2, attribute=False)
    assert (False, report.rows) == (again.changed, again.rows)


def test_a_real_ebpf_capture_lies_on_utc_between_its_anchors(tmp_path: Path) -> None:
    ingest([Path(__file__).parent / "data/ebpf/run_collect023/ebpf.out"], tmp_path / "lake", attribute=False)
    [(first, last, clock, offset)] = rows(
        tmp_path / "lake", "SELECT first_ns, last_ns, clock, offset_ns FROM captures WHERE kind = 'ebpf_csv'"
    )
    assert clock == "boottime"
    assert 1_795_963_713_379_540_792 < first < last < 1_795_963_713_529_275_289 + 10**9
    assert abs(offset - (1_795_963_713_379_540_792 - 4_797_291_118_125)) < 100_000


def test_what_is_no_trace_is_refused_by_name_and_the_rest_goes_on(shared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    shutil.copy(shared / "real/h200/rank0_new.sqlite", folder / "rank0.sqlite")
    whole = (folder / "rank0.sqlite").read_bytes()
    (folder / "rank1.sqlite").write_bytes(whole[: len(whole) // 3])
    (folder / "rank2.sqlite").touch()
    shutil.copy(shared / "real/public/nsys-sqlite/lfs-pointer/nsys_report.sqlite", folder / "rank3.sqlite")
    (folder / "rank4.sqlite").write_text("not a trace\n")
    report = ingest([folder], tmp_path / "lake", attribute=False)
    assert report.read == ("job/rank0.sqlite",)
    reasons = dict(report.unusable)
    assert [f"job/rank{n}.sqlite" for n in (1, 2, 3, 4)] == list(reasons)
    assert reasons["job/rank2.sqlite"] == "an empty file"
    assert "Git LFS pointer" in reasons["job/rank3.sqlite"]
    assert "not an SQLite file" in reasons["job/rank4.sqlite"]
    for reason in reasons.values():
        assert "\n" not in reason
        assert "reading it failed" not in reason


@pytest.mark.parametrize("name", ["train_new", "train_old", "graphnode_new", "mini_old", "doorbell_old"])
def test_the_run_of_every_real_report_knows_its_columns_and_holds_no_secret(
    shared: Path, tmp_path: Path, name: str
) -> None:
    report = ingest([shared / f"real/h200/{name}.sqlite"], tmp_path / "lake", attribute=False)
    assert (name, 1, ()) == (report.run, len(report.read), report.unusable)
    manifest = (tmp_path / "lake" / f"run={name}" / "manifest.json").read_text()
    for secret in ("PATH=", "HOME=", '"PATH"', '"HOME"', "TOKEN", "PASSWORD"):
        assert secret not in manifest
