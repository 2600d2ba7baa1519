"""The page docs/findings.md, from the headers of the detectors, their own words and the thresholds.

`python -m pipeline.reports.findings_page docs/findings.md` writes it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pipeline.attribution.findings import detectors
from pipeline.model import library, thresholds

_INTRODUCTION = """# Findings

What the detectors look for, in the order of explanation: causes before what they cause. A finding names what was measured,
the threshold that it crossed, its evidence, the confounders that were excluded and those that could not be, and what to do
next. Thresholds are data (`pipeline/model/thresholds.py`); shares are percent of the wall time of the steps that statistics
are made of. Each detector is one query in `queries/attribution/findings/`.

This page is made by `make docs` from the headers of the queries and the thresholds.
"""


def page() -> str:
    """The whole page, in Markdown."""
    codes = sorted(detectors(), key=lambda code: (thresholds.place(code), code))
    return "\n".join([_INTRODUCTION, *(line for code in codes for line in _section(code))])


def _section(code: str) -> Iterator[str]:
    text = library.sql(f"find_{code}")
    header, body = text.split("CREATE OR REPLACE", 1)
    lines = [line.removeprefix("--").strip() for line in header.splitlines()]
    what = lines[0].split(": ", 1)[1]
    yield f"## {code}\n"
    yield f"{what[0].upper()}{what[1:]}\n"
    if assumes := _field(lines, "Assumes"):
        # A name, such as out_of_buffer, keeps its letters.
        yield (assumes if "_" in assumes.split()[0] else f"{assumes[0].upper()}{assumes[1:]}") + "\n"
    yield f"- **Reads:** {_field(lines, 'Inputs')}"
    for title, column in (("Measures", "measure"), ("Confounders", "confounders"), ("What to do", "next")):
        for words in _words(body, column):
            yield f"- **{title}:** {words}"
    yield ""
    limits = [limit for limit in thresholds.THRESHOLDS if limit.detector == code]
    if limits:
        yield "| threshold | value | unit | why |\n|---|---|---|---|"
        for limit in limits:
            yield f"| {limit.name} | {limit.value:,.12g} | {limit.unit} | {limit.why} |"
        yield ""


def _field(lines: list[str], name: str) -> str:
    """A field of the header with the lines that continue it, on one line."""
    found: list[str] = []
    for line in lines:
        if line.startswith(f"{name}: "):
            found.append(line.removeprefix(f"{name}: "))
        elif found and not re.match(r"[A-Z][a-z]+:", line):
            found.append(line)
        elif found:
            break
    return " ".join(found).strip()


def _words(body: str, column: str) -> list[str]:
    """The literals of the expressions behind a column, a string a branch and SELECT, as the query has them.

    A column inside a text stands there in capitals.
    """
    literals: list[str] = []
    for end in re.finditer(rf"\bAS {column}\b", body):
        start = max((match.end() for match in re.finditer(r"\bAS [a-z_]+\s*,", body[: end.start()])), default=0)
        expression = re.sub(r"'\s*\|\|\s*'", "", body[start : end.start()])
        for branch in re.split(r"\b(?:WHEN|ELSE)\b", expression):
            result = branch.split("THEN", 1)[-1]
            result = re.sub(r"'\s*\|\|\s*([a-z_]+)\s*\|\|\s*'", lambda name: name[1].upper(), result)
            result = re.sub(r"'\s*\|\|\s*([a-z_]+)\s*(END\s*)?$", lambda name: f"{name[1].upper()}'", result)
            text = "".join(re.findall(r"'((?:[^']|'')*)'", result)).replace("''", "'").strip(" ;")
            if len(text) > 8:
                literals.append(text)
    return list(dict.fromkeys(literals))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
