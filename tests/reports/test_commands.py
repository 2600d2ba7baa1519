"""The commands that print reports: results on stdout, verdicts as exit codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from pipeline import cli
from tests.reports.lakes import small


def call(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Exit code of `mfuloss ARGUMENTS`."""
    monkeypatch.setattr(sys, "argv", ["mfuloss", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    small(lake, "base", slow_ms=0)
    return small(lake, "slow", slow_ms=60)


def test_a_report_goes_to_stdout(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "report", "base", "--lake", lake, "--format", "json") == 0
    assert json.loads(capfd.readouterr().out)["schema"] == "mfuloss.report/1"


def test_a_gate_that_fails_prints_the_comparison_and_exits_with_4(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", "base", "slow", "--lake", lake, "--gate", "5") == 4
    out, err = capfd.readouterr()
    assert out.startswith("mfuloss compare  base → slow\n")
    assert err.startswith("mfuloss: base → slow: lost 6.67 MFU points")
    assert err.count("\n") == 1


def test_a_gate_that_holds_exits_with_0(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "compare", "base", "slow", "--lake", lake, "--gate", "7", "--format", "json") == 0


def test_a_run_that_is_not_there_is_one_line_and_exit_code_2(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "compare", "base", "none", "--lake", lake) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_an_export_writes_the_file_and_keeps_stdout_clean(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "step.pftrace"
    assert call(monkeypatch, "export", "perfetto", "base", "--lake", lake, "--step", 1, "-o", target, "--rank", 0) == 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err == f"{target}: step 1 of 1 rank, 30 slices, 9 flows\n"
    assert target.stat().st_size > 1000
