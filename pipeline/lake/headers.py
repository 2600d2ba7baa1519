"""Headers of the SQL library, read: what a file answers, its inputs, arguments, columns, and an example."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.model import library

PUBLIC_SUBJECTS = ("macros", "questions", "views")
"""Folders of queries/ that are made for people."""

_FIRST = re.compile(r"-- (\w+): (.+)")
_SECTION = re.compile(r"-- (Inputs|Arguments|Output|Assumes|Example):\s*(.*)")
_FIELD = re.compile(r"--\s{2,}(\w+)\s{2,}([A-Z]\w*(?:\[\])?)(?:\s{2,}(\S.*))?$")
_MORE = re.compile(r"--\s{2,}(\S.*)")
_OBJECT = re.compile(r"(?im)^create\s+(?:or\s+replace\s+)?(?:temp\s+)?(view|macro|table)\s+(\w+)")


@dataclass(frozen=True)
class Field:
    """An argument or a column: DuckDB type and description, which may be empty."""

    name: str
    type: str
    text: str


@dataclass(frozen=True)
class Header:
    """A file of the library. kind: view, macro (a value), question (a table macro), or table; '' where unreadable."""

    path: Path
    name: str
    title: str
    kind: str
    defines: str
    inputs: str
    arguments: tuple[Field, ...]
    columns: tuple[Field, ...]
    result: str
    assumes: str
    example: str


def read(path: Path) -> Header:
    """The header of one file; what it lacks is empty."""
    text = path.read_text(encoding="utf-8")
    name = title = ""
    section = ""
    words: dict[str, list[str]] = {}
    fields: dict[str, list[Field]] = {"Arguments": [], "Output": []}
    for number, line in enumerate(text.splitlines()):
        if not line.startswith("--"):
            break
        if number == 0:
            found = _FIRST.match(line)
            name, title = found.groups() if found else ("", "")
        elif found := _SECTION.match(line):
            section = found[1]
            words.setdefault(section, []).append(found[2])
        elif section in fields and (found := _FIELD.match(line)):
            fields[section].append(Field(found[1], found[2], found[3] or ""))
        elif found := _MORE.match(line):
            if fields.get(section):
                last = fields[section][-1]
                fields[section][-1] = Field(last.name, last.type, f"{last.text} {found[1]}")
            elif section:
                words[section].append(found[1])
            else:
                title = f"{title} {found[1]}"
    made = _OBJECT.search(text)
    kind = made[1].lower() if made else ""
    if kind == "macro" and re.search(
        r"(?is)create\s+(?:or\s+replace\s+)?(?:temp\s+)?macro[^;]*?\)\s*as\s+table\b", text
    ):
        kind = "question"

    def said(key: str) -> str:
        return " ".join(part for part in words.get(key, []) if part).strip()

    return Header(
        path,
        name,
        title,
        kind,
        made[2] if made else "",
        said("Inputs"),
        tuple(fields["Arguments"]),
        tuple(fields["Output"]),
        said("Output"),
        said("Assumes"),
        said("Example"),
    )


def public() -> list[Header]:
    """Every file of the library that is made for people, by folder and name."""
    top = library.queries_dir()
    return [read(path) for subject in PUBLIC_SUBJECTS for path in sorted((top / subject).glob("*.sql"))]
