"""The report on a terminal and in a pipe."""

from __future__ import annotations

from pathlib import Path

from pipeline.reports import render
from tests.reports.lakes import small

GOLDEN = Path(__file__).parent / "golden"


def test_the_text_of_a_small_lake_is_the_golden_one(tmp_path: Path) -> None:
    assert render(small(tmp_path), None, "text") == (GOLDEN / "small.txt").read_text(encoding="utf-8")


def test_no_line_is_wider_than_100_columns_and_none_has_terminal_codes(tmp_path: Path) -> None:
    text = str(render(small(tmp_path, kernel="k" * 300), None, "text"))
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text


def test_on_a_terminal_bars_have_colour(tmp_path: Path) -> None:
    assert "\x1b[" in str(render(small(tmp_path), None, "text", color=True))
