"""The report on a terminal and in a pipe."""

from __future__ import annotations

from pathlib import Path

from pipeline.reports import render

GOLDEN = Path(__file__).parent / "golden"


def test_the_text_of_a_small_lake_is_the_golden_one(small_lake: Path) -> None:
    assert render(small_lake, None, "text") == (GOLDEN / "small.txt").read_text(encoding="utf-8")


def test_no_line_is_wider_than_100_columns_and_none_has_terminal_codes(large_lake: Path) -> None:
    text = str(render(large_lake, None, "text"))
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text


def test_on_a_terminal_bars_have_colour(small_lake: Path) -> None:
    assert "\x1b[" in str(render(small_lake, None, "text", color=True))
