"""The report on a terminal and in a pipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pipeline.lake.catalog import find_run
from pipeline.reports import data, render
from pipeline.reports.load import load
from pipeline.reports.words import step_time_lines

GOLDEN = Path(__file__).parent / "golden"


def test_the_text_of_a_small_lake_is_the_golden_one(small_lake: Path) -> None:
    assert render(small_lake, None, "text") == (GOLDEN / "small.txt").read_text(encoding="utf-8")


def test_no_line_is_wider_than_100_columns_and_none_has_terminal_codes(large_lake: Path) -> None:
    text = str(render(large_lake, None, "text"))
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b" not in text


def test_on_a_terminal_bars_have_colour(small_lake: Path) -> None:
    assert "\x1b[" in str(render(small_lake, None, "text", color=True))


def test_hfu_stands_beside_mfu_and_the_peak_with_its_source(small_lake: Path) -> None:
    report = load(find_run(small_lake, None))
    facts = (
        *report.facts,
        data.Fact("hfu_points", "48.123456", "MFU with recompute counted"),
        data.Fact("peak_source_1", "bf16", "H100 SXM bf16 dense: a data sheet"),
    )
    assert step_time_lines(replace(report, facts=facts))[-2:] == [
        "MFU: 36.36 % (modelled); HFU, recompute counted: 48.12 %",
        "peak: H100 SXM bf16 dense: a data sheet",
    ]
    of_a_rank = replace(report, facts=facts, scope=data.Scope(0, None))
    assert step_time_lines(of_a_rank)[-2] == "MFU: 36.36 % (modelled)"
