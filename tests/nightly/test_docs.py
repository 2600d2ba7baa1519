"""docs/nightly.md: its units, its crontab line and its CronJob hold a command that runs as written."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.nightly.settings import NightlyConfig
from tests import toy
from tests.conftest import ROOT

TEXT = (ROOT / "docs" / "nightly.md").read_text(encoding="utf-8")


def block(language: str, number: int = 0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)[number]


def service_command() -> list[str]:
    line = next(line for line in block("ini").splitlines() if line.startswith("ExecStart="))
    return shlex.split(line.removeprefix("ExecStart=/usr/bin/env "))


def cron_command() -> list[str]:
    return shlex.split(block("crontab").strip().split(maxsplit=5)[5])


def kubernetes_command() -> list[str]:
    lists = re.findall(r"(?:command|args): \[(.*?)\]", block("yaml"))
    return [str(word) for part in lists for word in tomllib.loads(f"x = [{part}]")["x"]]


@pytest.mark.parametrize("command", [service_command, cron_command, kubernetes_command])
def test_the_command_runs_as_written(
    command: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert callable(command)
    words = [word.replace("/srv/mfuloss", str(tmp_path)) for word in command()]
    toy.install(monkeypatch)
    monkeypatch.setattr("pipeline.ingest.derive", lambda *_, **__: None)
    monkeypatch.setattr("pipeline.nightly.pages.render", lambda lake, run, format: run)
    monkeypatch.setenv("NO_COLOR", "1")
    toy.write(tmp_path / "inbox" / "moe" / "2026-01-01" / "rank0.toy")
    (tmp_path / "inbox" / "moe" / "2026-01-01" / "run.toml").write_text("")
    (tmp_path / "inbox" / "nightly.toml").write_text("[inbox]\nsettle_s = 0\n")
    (tmp_path / "metrics").mkdir()
    monkeypatch.setattr(sys, "argv", words)
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            main()
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert words[0] == "mfuloss"
    assert not end.value.code
    assert "1 read" in capfd.readouterr().out
    assert (tmp_path / "metrics" / "mfuloss.prom").read_text().endswith("# EOF\n")
    assert (tmp_path / "pages" / "index.html").is_file()


def test_the_units_are_what_systemd_takes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    for number, kind in enumerate(("service", "timer")):
        (tmp_path / f"mfuloss-nightly.{kind}").write_text(block("ini", number))
    done = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "mfuloss-nightly.service", tmp_path / "mfuloss-nightly.timer"],
        capture_output=True,
        text=True,
    )
    complaints = [line for line in done.stderr.splitlines() if "mfuloss-nightly" in line]
    assert complaints == []


def test_the_defaults_of_nightly_toml_are_those_of_the_program() -> None:
    assert NightlyConfig() == NightlyConfig.model_validate(tomllib.loads(block("toml")))
