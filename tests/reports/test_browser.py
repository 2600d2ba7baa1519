"""The page in a real browser: no errors, no requests, charts drawn, search and sort work, 64 ranks open fast."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.reports import render

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium: apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="no playwright")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Opened:
    """A page from a file, with what it logged and what it asked for."""

    def __init__(self, browser: Browser, path: Path, *, width: int = 1280, dark: bool = False) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        started = time.perf_counter()
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready=yes]", state="attached")
        self.seconds = time.perf_counter() - started


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, evil_lake: Path, large_lake: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    made = {}
    for name, lake in (("small", evil_lake), ("large", large_lake)):
        made[name] = folder / f"{name}.html"
        made[name].write_text(str(render(lake, None, "html")), encoding="utf-8")
    return made


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 900, 1440])
def test_it_opens_without_errors_or_requests_and_fits_the_screen(
    browser: Browser, pages: dict[str, Path], width: int, dark: bool
) -> None:
    opened = Opened(browser, pages["small"], width=width, dark=dark)
    assert opened.problems == []
    assert opened.requests == [pages["small"].as_uri()]
    assert opened.page.evaluate("document.documentElement.scrollWidth") == width
    opened.context.close()


def test_charts_are_drawn(browser: Browser, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["small"])
    visible = "[...document.querySelectorAll('section svg')].filter(s => s.getBoundingClientRect().width > 300).length"
    assert opened.page.evaluate(visible) == 6
    pixels = """() => { const c = document.getElementById('heat-main');
        return [...new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer))].length }"""
    assert opened.page.evaluate(pixels) == 2
    opened.page.click(".thumbs button:has-text('waiting for a late rank')")
    assert opened.page.inner_text("#heat-name") == "waiting for a late rank"
    assert opened.page.evaluate(pixels) == 3
    opened.context.close()


def test_pointing_at_a_cell_tells_its_rank_step_and_time(browser: Browser, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["small"])
    opened.page.click(".thumbs button:has-text('waiting for a late rank')")
    box = opened.page.locator("#heat-main").bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.25)
    assert opened.page.inner_text("#heat-tip") == "rank 0, step 3: waiting for a late rank 35.0 ms, 26.9 % of 130 ms"
    opened.context.close()


def test_search_hides_other_rows_and_sorting_goes_by_number(browser: Browser, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["large"])
    rows = "[...document.querySelectorAll('#table-ranks tbody tr')].filter(r => !r.hidden).map(r => r.cells[0].textContent)"
    opened.page.fill("#table-ranks input", "node01")
    assert opened.page.evaluate(rows) == [str(rank) for rank in range(8, 16)]
    assert opened.page.inner_text("#table-ranks .n") == "8 of 64 rows"
    opened.page.fill("#table-ranks input", "")
    head = opened.page.locator("#table-ranks th button").first
    head.click()
    assert opened.page.evaluate(rows)[:3] == ["0", "1", "2"]
    head.click()
    assert opened.page.evaluate(rows)[:3] == ["63", "62", "61"]
    assert opened.problems == []
    opened.context.close()


def test_a_table_can_be_copied(browser: Browser, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["small"])
    opened.page.evaluate(
        "void (navigator.clipboard && (navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); }))"
    )
    opened.page.evaluate(
        "void (document.execCommand = () => { window.copied = document.querySelector('textarea').value; return true; })"
    )
    opened.page.click("#table-classes .copy")
    opened.page.wait_for_selector("#table-classes .copy:has-text('copied')")
    lines = opened.page.evaluate("window.copied").split("\n")
    assert lines[0] == "class\ttime\tpoints\tevidence"
    assert lines[3] == "RDMA transfer\t20 ms\t18.18\tinferred; beside it net_excess 2 ms"
    opened.context.close()


def test_the_theme_can_be_turned(browser: Browser, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["small"])
    paper = "getComputedStyle(document.body).backgroundColor"
    before = opened.page.evaluate(paper)
    opened.page.click("#theme")
    assert (before, opened.page.evaluate(paper)) == ("rgb(255, 255, 255)", "rgb(20, 23, 28)")
    opened.context.close()


def test_64_ranks_open_in_under_two_seconds(browser: Browser, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["large"])
    assert opened.problems == []
    assert opened.seconds < 2
    opened.context.close()


def test_it_prints_in_light_colours_with_the_wide_charts(browser: Browser, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["small"], width=390, dark=True)
    opened.page.emulate_media(media="print")
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert opened.page.evaluate("getComputedStyle(document.querySelector('.narrow')).display") == "none"
    opened.context.close()
