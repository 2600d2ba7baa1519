"""The README's picture and figures are those of the sample that it names."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

import pipeline
from pipeline.reports import render
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("lake")
    pipeline.ingest([str(ROOT / "sample_traces" / "moe-control-plane")], lake, jobs=1)
    return lake


def test_what_the_readme_quotes_is_what_the_report_says(lake: Path) -> None:
    said = " ".join(str(render(lake, None, "text")).split())
    quoted = [line for line in README.split("```")[1].splitlines() if line.strip()]
    assert len(quoted) > 10
    assert [line for line in quoted if " ".join(line.split()) not in said] == []


def test_the_samples_efficiencies_are_each_the_product_of_those_below_it(lake: Path) -> None:
    with pipeline.connect(lake) as connection:
        facts = dict(connection.execute("SELECT name, value FROM run_facts WHERE starts_with(name, 'pop_')").fetchall())
    value = {name.removeprefix("pop_"): float(text) for name, text in facts.items()}
    factors = {name: share for name, share in value.items() if name.startswith("transfer_factor_")}
    assert len(factors) == 5
    assert {name for name, share in factors.items() if share == 1} == {"transfer_factor_blocking_rtt"}
    assert prod(factors.values()) == pytest.approx(value["transfer_efficiency"], abs=1e-5)
    communication = value["serialisation_efficiency"] * value["transfer_efficiency"]
    assert communication == pytest.approx(value["communication_efficiency"], abs=1e-5)
    assert value["load_balance"] * communication == pytest.approx(value["parallel_efficiency"], abs=1e-5)


def test_the_readmes_picture_is_the_samples_waterfall(lake: Path) -> None:
    """`make docs` draws it again."""
    picture = (ROOT / "docs" / "images" / "breakdown.svg").read_text(encoding="utf-8")
    assert render(lake, None, "svg") == picture
