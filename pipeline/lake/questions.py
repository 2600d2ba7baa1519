"""The ready questions for the command line: listed, shown, and called with values as parameters of the statement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipeline.lake.headers import Header, public
from pipeline.model.errors import UsageError


def listing() -> str:
    """Name and title of every public query, by folder."""
    headers = public()
    width = max(len(header.name) for header in headers)
    lines = []
    for folder in ("questions", "views", "macros"):
        lines.append(f"{folder}:")
        lines += [f"  {h.name:<{width}}  {h.title}" for h in headers if h.path.parent.name == folder]
    return "\n".join(lines)


def text(name: str) -> str:
    """The SQL file of a public query. Raises UsageError for an unknown name."""
    return _find(name).path.read_text(encoding="utf-8").rstrip()


def call(name: str, arguments: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """SQL that asks a question or reads a view, and its parameters, from KEY=VALUE texts.

    Names and types come from the file's header, values never enter the SQL. Raises UsageError for an
    unknown name or argument, and for what takes no named arguments.
    """
    header = _find(name)
    if header.kind not in ("question", "view") or header.path.parent.name == "macros":
        raise UsageError(f"{name} is a piece for queries, not a question", todo=f"its use: {header.example}")
    types = {each.name: each.type for each in header.arguments}
    values: dict[str, Any] = {}
    for argument in arguments:
        key, sign, value = argument.partition("=")
        if key == "run" and "in_run" in types:
            key = "in_run"
        if not sign or key not in types:
            known = ", ".join(types) or "none"
            raise UsageError(f"--param {argument}: no argument {key!r} of {name}", todo=f"KEY=VALUE of: {known}")
        if key in values:
            raise UsageError(f"--param {key} is given twice")
        values[key] = value
    if header.kind == "view":
        return f"FROM {header.defines}", {}
    given = ", ".join(f"{key} := ${key}::{types[key]}" for key in values)
    return f"FROM {header.defines}({given})", values


def _find(name: str) -> Header:
    found = {header.name: header for header in public()}
    if name not in found:
        raise UsageError(f"no query {name!r} in the library", todo="names: mfuloss sql --list")
    return found[name]
