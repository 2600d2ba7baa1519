"""docs/findings.md is what the detectors say of themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.attribution.findings import detectors
from pipeline.model import thresholds
from pipeline.reports.findings_page import page

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_in_the_repository_is_up_to_date() -> None:
    assert (DOCS / "findings.md").read_text(encoding="utf-8") == page(), "run make docs"


@pytest.mark.parametrize("code", detectors())
def test_every_detector_says_what_it_measures_excludes_and_advises(code: str) -> None:
    section = page().split(f"## {code}\n", 1)[1].split("\n## ", 1)[0]
    assert [
        title for title in ("Reads", "Measures", "Confounders", "What to do") if f"**{title}:**" not in section
    ] == []


def test_every_detector_has_a_place_in_the_order_of_explanation() -> None:
    assert sorted(detectors()) == sorted(thresholds.ORDER)
