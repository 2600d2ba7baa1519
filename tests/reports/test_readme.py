"""The README's picture and figures are those of the sample that it names."""

from __future__ import annotations

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


def test_the_readmes_picture_is_the_samples_waterfall(lake: Path) -> None:
    """`make docs` draws it again."""
    picture = (ROOT / "docs" / "images" / "breakdown.svg").read_text(encoding="utf-8")
    assert render(lake, None, "svg") == picture
