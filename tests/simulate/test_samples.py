"""The simulated captures in sample_traces are what the simulator writes today."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pipeline.cli import app

SAMPLES = Path(__file__).parents[2] / "sample_traces"


@pytest.mark.parametrize("name", ["moe-control-plane", "decode-stop-and-wait"])
def test_the_command_in_a_samples_source_file_writes_it_again(name: str, tmp_path: Path) -> None:
    command = (SAMPLES / name / "SOURCE.txt").read_text().splitlines()[0].split(": mfuloss ")[1]
    result = CliRunner().invoke(app, [*shlex.split(command), "--out", str(tmp_path / "again")])

    assert (result.exit_code, result.output.strip()) == (0, str(tmp_path / "again"))
    for path in sorted((SAMPLES / name).rglob("*")):
        if path.suffix in (".csv", ".jsonl", ".log", ".toml", ".json"):
            again = tmp_path / "again" / path.relative_to(SAMPLES / name)
            assert path.read_bytes() == again.read_bytes(), path.name


def test_every_scenario_is_listed_with_its_title() -> None:
    result = CliRunner().invoke(app, ["simulate", "--list"])

    assert result.exit_code == 0
    assert "healthy                 large messages, hidden behind compute: nothing to find" in result.output
