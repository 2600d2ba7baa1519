"""The library of queries as such: headers that hold, pages that are up to date, questions from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.lake import library_check, questions
from pipeline.lake.console import answer
from pipeline.lake.reference import PAGES
from pipeline.model import library
from pipeline.model.errors import UsageError
from tests.conftest import ROOT
from tests.queries.lake import lake


def test_the_library_is_sound() -> None:
    assert library_check.violations() == []


def test_a_bad_file_is_told_with_everything_that_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "views"
    folder.mkdir()
    (folder / "sizes.sql").write_text(
        "-- sizes: how large messages are.\n--\n-- Output:\n--   run   VARCHAR  run\n--   size  BIGINT\n"
        "CREATE OR REPLACE VIEW lengths AS SELECT run, bytes AS long FROM rdma_messages;\n"
    )
    monkeypatch.setattr(library, "queries_dir", lambda: tmp_path)
    start = "queries/views/sizes.sql: "
    assert library_check.violations() == [
        start + "it defines lengths; name it sizes, or the file lengths.sql",
        start + "sizes has no example; add: -- Example: SELECT ...;",
        start + "sizes.size has no description; say what it means, with its unit",
        start + "sizes.size is a number without a unit; "
        "end it in _ns, _bytes, _bytes_per_s or _percent, or begin a count with n_",
        start + "sizes returns long BIGINT, its header does not say so; add it to Output",
        start + "sizes does not return size BIGINT; take it from Output, or return it",
    ]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_its_source_says_now(page: str) -> None:
    assert PAGES[page]() == (ROOT / "docs" / page).read_text(encoding="utf-8"), "make docs"


def test_a_question_is_asked_with_values_as_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nvtx = [
        {"rank": 0, "kind": "push_pop", "text": text, "start_ns": 0, "end_ns": ns} for text, ns in (("a", 5), ("b", 9))
    ]
    lake(tmp_path, nvtx=nvtx).close()
    answer(tmp_path, *questions.call("nvtx_times", ["run=r", "top=1"]), format="json")
    answer(tmp_path, *questions.call("nvtx_times", ["in_run=x' OR 'r' = 'r"]), format="json")
    first, second = capsys.readouterr().out.splitlines()
    assert ([row["text"] for row in json.loads(first)], json.loads(second)) == (["b"], [])


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("nothing", [], "no query 'nothing' in the library; names: mfuloss sql --list"),
        ("step_times", ["top=3"], "--param top=3: no argument 'top' of step_times; KEY=VALUE of: in_run"),
        ("step_times", ["run=a", "run=b"], "--param in_run is given twice"),
        ("fmt_ns", [], "fmt_ns is a piece for queries, not a question"),
    ],
)
def test_a_question_that_can_not_be_asked_says_why(name: str, arguments: list[str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        questions.call(name, arguments)
    assert error.value.line().startswith(message)


def test_the_list_names_every_question_and_show_prints_its_file() -> None:
    names = {line.split()[0] for line in questions.listing().splitlines() if line.startswith("  ")}
    assert {"slow_steps", "kernel_with_launch", "step_of"} <= names
    assert questions.text("drift").startswith("-- drift: ")
