"""run.toml: what is accepted, and what a mistake says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipeline.model.errors import ConfigError
from pipeline.model.run import DEFAULT_STEP_PATTERN, RunConfig, load, parse


@pytest.mark.parametrize(
    ("text", "step"),
    [("step_12", "12"), ("ProfilerStep#7", "7"), ("iteration 3", "3"), ("train_step 4", "4"), ("iter=5", "5")],
)
def test_the_default_pattern_reads_common_step_names(text: str, step: str) -> None:
    found = re.match(DEFAULT_STEP_PATTERN, text, re.IGNORECASE)
    assert found is not None
    assert step == found["step"]


@pytest.mark.parametrize("text", ["optimizer_step", "step_", "stepping 3", "substep_3", "cub::step_3"])
def test_other_ranges_are_no_steps(text: str) -> None:
    assert re.match(DEFAULT_STEP_PATTERN, text, re.IGNORECASE) is None


def test_an_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"network": {"beta_bytes_per_sec": 1}})
    assert caught.value.line() == "run.toml: unknown key network.beta_bytes_per_sec; did you mean beta_bytes_per_s?"


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("[run\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert caught.value.line().startswith(f"{path}: not TOML: ")
    assert "\n" not in caught.value.line()


def test_a_configuration_survives_the_manifest() -> None:
    config = parse(
        {"ranks": {"from": "env"}, "run": {"started": "2026-01-31T04:00:00Z"}, "network": {"nics": {"0": "mlx5_0"}}}
    )
    assert config == RunConfig.model_validate(config.dump())
    assert config.run.started_ns == 1769832000 * 10**9
