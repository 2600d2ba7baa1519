"""Markdown, HTML, SVG and PNG of a report."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pipeline.model.errors import UsageError
from pipeline.reports import render

GOLDEN = Path(__file__).parent / "golden"


class _Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]


def test_the_markdown_of_a_small_lake_is_the_golden_one(small_lake: Path) -> None:
    assert render(small_lake, None, "markdown") == (GOLDEN / "small.md").read_text(encoding="utf-8")


def test_markup_from_a_trace_is_shown_as_text_never_as_markup(evil_lake: Path) -> None:
    page = str(render(evil_lake, None, "html"))
    scripts = [attributes for tag, attributes in _Tags(page).tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "heat-data"}, {}]
    assert "alert('kernel')</script>" not in page
    assert "&lt;script&gt;alert" in page


def test_markup_from_a_trace_is_escaped_in_markdown(evil_lake: Path) -> None:
    assert "<script>" not in str(render(evil_lake, None, "markdown"))


def test_the_page_names_nothing_outside_itself(small_lake: Path) -> None:
    page = str(render(small_lake, None, "html"))
    parsed = _Tags(page)
    links = [
        v
        for _, attributes in parsed.tags
        for k, v in attributes.items()
        if k in ("src", "href", "srcset", "action", "data")
    ]
    assert all(link is not None and link.startswith(("#", "data:")) for link in links)
    assert "@import" not in page
    assert set(re.findall(r"url\(([^)]*)\)", page)) == {"#hatch-inferred", "#hatch-modelled"}
    assert len(parsed.ids) == len(set(parsed.ids))


def test_every_section_is_on_the_page_of_an_empty_run_and_says_what_is_absent(empty_lake: Path) -> None:
    page = str(render(empty_lake, None, "html"))
    for section in ("happened", "waterfall", "where", "messages", "timeline", "waits", "findings", "help", "coverage"):
        assert f'<section id="{section}">' in page
    assert "no step, not even a window" in page


@pytest.mark.parametrize("format", ["text", "markdown", "json", "svg"])
def test_every_format_takes_an_empty_run(empty_lake: Path, format: str) -> None:
    assert render(empty_lake, None, format)


def test_a_page_of_64_ranks_and_100_steps_is_under_3_mb(large_lake: Path) -> None:
    assert len(str(render(large_lake, None, "html")).encode()) < 3_000_000


def test_the_svg_is_one_well_formed_file_that_hatches_what_is_inferred(small_lake: Path) -> None:
    text = str(render(small_lake, None, "svg"))
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "url(#hatch-inferred)" in text
    assert "36.36" in text


def test_the_png_is_a_png(small_lake: Path) -> None:
    png = render(small_lake, None, "png")
    assert isinstance(png, bytes)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"


def test_an_unknown_format_is_an_error_that_lists_the_known_ones(small_lake: Path) -> None:
    with pytest.raises(UsageError, match="no format 'pdf'; choose one of text, json"):
        render(small_lake, None, "pdf")
