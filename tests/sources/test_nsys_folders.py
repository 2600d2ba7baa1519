"""Folder exports and reports give the rows that the SQLite export of the same capture gives."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pipeline.model.capture import Clock, Status
from pipeline.model.errors import UnusableInput
from pipeline.sources import nsys_rep
from tests.sources import nsys

DATA = Path(__file__).parent.parent / "data" / "nsys"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["train_new", "rank0_new", "rank1_new"])
def test_a_parquetdir_gives_the_same_rows_as_the_sqlite_export_table_by_table(shared: Path, name: str) -> None:
    sqlite = nsys.rows(shared / "real/h200" / f"{name}.sqlite")
    parquet = nsys.rows(shared / "real/h200" / f"{name}_pqtdir")
    assert {t: len(r) for t, r in parquet.items()} == {t: len(r) for t, r in sqlite.items()}
    assert [table for table in sqlite if parquet[table] != sqlite[table]] == []


def test_a_real_parquetdir_holds_its_nccl_operations_and_allow_listed_environment() -> None:
    capture = nsys.inspect(DATA / "rank0_new_pqtdir")
    found = nsys.rows(DATA / "rank0_new_pqtdir")
    assert (capture.status, capture.clock, capture.host) == (Status.OK, Clock.REALTIME, "vm")
    assert [p.env for p in capture.processes] == [{"NCCL_NVLS_ENABLE": "0", "NVSHMEM_DISABLE_NVLS": "1"}]
    assert Counter(op["op"] for op in found["comm_ops"]) == {"AllReduce": 36, "AllToAll": 9}
    assert "PYTHONUNBUFFERED" not in str(found)


def test_an_arrowdir_gives_the_same_rows_as_the_parquetdir(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in (DATA / "rank0_new_pqtdir").glob("*.parquet"):
        table = pq.read_table(file)
        with (
            pa.OSFile(str(tmp_path / f"{file.stem}.arrow"), "wb") as sink,
            pa.ipc.new_stream(sink, table.schema) as out,
        ):
            out.write_table(table)
    assert nsys.rows(tmp_path) == nsys.rows(DATA / "rank0_new_pqtdir")


def test_a_real_report_of_two_processes_keeps_them_apart() -> None:
    found = nsys.rows(DATA / "mfu_2gpu_cut.sqlite")
    launches = {(c["rank"], c["start_ns"], c["correlation_id"]) for c in found["cuda_api"]}
    ops = [op for op in found["gpu_ops"] if op["launch_start_ns"] is not None]
    assert Counter(op["rank"] for op in found["gpu_ops"]) == {0: 182, 1: 180}
    assert all((op["rank"], op["launch_start_ns"], op["correlation_id"]) in launches for op in ops)
    assert Counter(op["comm_op"] for op in ops if op["op_class"] == "comm") == {"SendRecv": 6}


def test_a_folder_with_a_cut_file_is_refused_by_its_name(tmp_path: Path) -> None:
    shutil.copytree(DATA / "rank0_new_pqtdir", tmp_path / "export")
    kernels = tmp_path / "export" / "CUPTI_ACTIVITY_KIND_KERNEL.parquet"
    kernels.write_bytes(kernels.read_bytes()[:1000])
    with pytest.raises(UnusableInput, match=r"CUPTI_ACTIVITY_KIND_KERNEL\.parquet is not a readable Parquet file"):
        nsys.inspect(tmp_path / "export")


# ------------------------------------------------------------------------------------------- .nsys-rep


def _fake_nsys(tmp_path: Path, script: str) -> None:
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MFULOSS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.delenv("NSYS", raising=False)
    path = tmp_path / "rank3.nsys-rep"
    path.write_bytes(b"a report")
    return path


def test_without_nsys_a_report_is_refused_with_the_command_to_run_elsewhere(report: Path) -> None:
    with pytest.raises(UnusableInput) as error:
        nsys.inspect(report)
    assert error.value.line().endswith(
        "nsys export --type=sqlite --force-overwrite=true --output=rank3.sqlite rank3.nsys-rep"
    )


def test_a_report_is_exported_once_and_read_like_its_export(tmp_path: Path, report: Path) -> None:
    export = nsys.write(tmp_path / "export.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": [nsys.kernel(0, 100)]})
    _fake_nsys(
        tmp_path,
        f'echo run >> {tmp_path}/runs; for a in "$@"; do case $a in --output=*) cp {export} "${{a#--output=}}";; esac; done',
    )
    assert nsys.rows(report) == nsys.rows(export)
    assert nsys.inspect(report).kind == nsys_rep.KIND
    assert (tmp_path / "runs").read_text() == "run\n"


def _cached(folder: Path, digit: str, size: int, age_s: float, now_s: float) -> Path:
    path = folder / f"{digit * 64}.sqlite"
    path.write_bytes(b"x" * size)
    os.utime(path, (now_s - age_s, now_s - age_s))
    return path


def test_exports_go_when_they_are_old_or_too_much_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nsys_rep, "KEEP_BYTES", 250)
    hour, now = 3_600, 1_000_000_000.0
    ages = {"a": 1, "b": 2, "c": 8, "d": 9, "e": 24 * 15}
    files = {digit: _cached(tmp_path, digit, 100, age * hour, now) for digit, age in ages.items()}
    own = tmp_path / "mine.sqlite"
    own.write_bytes(b"x" * 1_000)
    os.utime(own, (0, 0))
    left = tmp_path / ".export-killed"
    left.mkdir()
    os.utime(left, (0, 0))
    # Two of the last hours stay whatever they take; of the others one too many goes, and the one of two weeks ago.
    with files["d"].open("rb") as reader:
        fcntl.flock(reader, fcntl.LOCK_SH)
        assert set(nsys_rep.prune(tmp_path, now_s=now)) == {files["c"], files["e"], left}
    assert nsys_rep.prune(tmp_path, now_s=now) == [files["d"]]
    assert set(tmp_path.iterdir()) == {own, files["a"], files["b"]}


def test_an_export_in_use_is_not_pruned_by_another_process(tmp_path: Path, report: Path) -> None:
    export = nsys.write(tmp_path / "export.sqlite", {"CUPTI_ACTIVITY_KIND_KERNEL": [nsys.kernel(0, 100)]})
    _fake_nsys(tmp_path, f'for a in "$@"; do case $a in --output=*) cp {export} "${{a#--output=}}";; esac; done')
    script = (
        "import sys; from pathlib import Path; from pipeline.sources.nsys_rep import prune\n"
        "print(len(prune(Path(sys.argv[1]), now_s=4e9)))"
    )
    another = [sys.executable, "-c", script, str(tmp_path / "cache")]
    with nsys_rep.exported(report) as file:
        assert subprocess.run(another, capture_output=True, text=True, check=True).stdout == "0\n"
        assert file.is_file()
    assert subprocess.run(another, capture_output=True, text=True, check=True).stdout == "1\n"
    with nsys_rep.exported(report) as file:
        assert file.is_file()


def test_f23_a_report_that_nsys_fails_to_export_is_refused_with_what_nsys_said(tmp_path: Path, report: Path) -> None:
    _fake_nsys(tmp_path, 'echo "Importer error status: TimeConversion failed" >&2; exit 1')
    with pytest.raises(UnusableInput, match="TimeConversion failed"):
        nsys.inspect(report)


def test_f23_a_qdstrm_that_was_left_behind_is_refused_for_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "report1.qdstrm"
    path.write_bytes(b"stream")
    with pytest.raises(UnusableInput, match="never made into a report"):
        nsys.inspect(path)


@pytest.mark.shared
def test_the_real_nsys_exports_a_real_report(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if nsys_rep.nsys_program() is None:
        pytest.skip("needs nsys on PATH or in $NSYS")
    monkeypatch.setenv("MFULOSS_CACHE", str(tmp_path))
    monkeypatch.setenv("NSYS", os.environ.get("NSYS", "nsys"))
    found = nsys.rows(shared / "real/public/nsys-sqlite/nways-jacobi/jacobi_report.nsys-rep")
    ops = Counter(op["op_class"] for op in found["gpu_ops"])
    assert (ops["compute"], ops["copy"], len(found["cuda_api"])) == (1001, 4003, 6017)


def test_rows_do_not_depend_on_how_the_file_is_cut_into_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    from pipeline.sources import nsys_capture, nsys_sqlite

    whole = nsys.rows(DATA / "mfu_2gpu_cut.sqlite")
    monkeypatch.setattr(nsys_capture, "_CHUNK_ROWS", 50)
    monkeypatch.setattr(nsys_sqlite, "_BATCH_ROWS", 16)
    assert nsys.rows(DATA / "mfu_2gpu_cut.sqlite") == whole
