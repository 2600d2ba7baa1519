"""Reference pages from the library's headers and the schema: `python -m pipeline.lake.reference docs`."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel

from pipeline.lake.headers import Field, Header, public
from pipeline.model import run
from pipeline.model.run import RunConfig
from pipeline.model.schema import TABLES, Kind

_FOLDERS = {
    "questions": "Questions, ready to ask: table macros whose arguments all have defaults.",
    "views": "Views: the joins that people want, over all runs of the lake.",
    "macros": "Macros: pieces for queries of your own.",
}


def queries_page() -> str:
    """docs/queries.md: every public file of the library."""
    headers = public()
    lines = [
        "# Queries",
        "",
        "Made by `make docs` from the headers of `queries/`. They work in `duckdb -init LAKE/catalog.sql`, in",
        "`mfuloss sql` and through `pipeline.connect`. `mfuloss sql --list` lists them, `--show NAME` prints one, and",
        "`--run NAME --param KEY=VALUE` asks a question. A new query is one SQL file and one case in",
        "`tests/queries/test_questions.py`; `make lint` checks its header against its result.",
        "",
    ]
    for folder, about in _FOLDERS.items():
        lines += [f"## {folder.capitalize()}", "", about, ""]
        for header in headers:
            if header.path.parent.name == folder:
                lines += _entry(header)
    return "\n".join(lines).rstrip() + "\n"


def lake_page() -> str:
    """docs/lake.md: every table of the schema."""
    lines = [
        "# The lake",
        "",
        "Made by `make docs` from `pipeline/model/schema.py`. A lake is a folder: `run=<id>/<table>/<name>.parquet`,",
        "`run=<id>/manifest.json` and `catalog.sql`, which has each table as a view over all runs with the column `run`",
        "in front. Times (`time`) are int64 ns since the UTC epoch on the run clock.",
        "",
    ]
    for table in TABLES.values():
        made = "derived by attribution" if table.derived else "from captures"
        lines += [
            f"## {table.name}",
            "",
            f"A row is {table.text}; {made}; files are sorted by {', '.join(table.sort)}.",
            "",
            "| column | type | kind | meaning |",
            "|---|---|---|---|",
        ]
        for column in table.columns:
            kind = {Kind.TIME: "time, ns", Kind.DURATION: "duration, ns", Kind.SIZE: "bytes"}.get(column.kind, "")
            lines.append(f"| {column.name} | {column.type} | {kind} | {_cell(column.text)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def run_toml_page() -> str:
    """docs/run_toml.md: every key of run.toml, from the texts below the fields of `pipeline.model.run`."""
    texts = _field_texts()
    lines = [
        "# run.toml",
        "",
        "Made by `make docs` from `pipeline/model/run.py`. A file beside the captures, or `--config FILE`: what no capture knows.",
        "Every key is optional; an unknown one is an error that names the nearest. `mfuloss attribute` goes again after a change.",
        "",
    ]
    for name, section in RunConfig.model_fields.items():
        kind = section.annotation
        assert isinstance(kind, type)
        assert issubclass(kind, BaseModel)
        lines += [f"## [{name}]", "", str(kind.__doc__), "", "| key | default | meaning |", "|---|---|---|"]
        for key, field in kind.model_fields.items():
            default = field.get_default(call_default_factory=True)
            shown = "" if default in (None, [], {}) else f"`{json.dumps(default).replace('|', chr(92) + '|')}`"
            lines.append(f"| {field.alias or key} | {shown} | {_cell(texts[kind.__name__, key])} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _field_texts() -> dict[tuple[str, str], str]:
    """(section, field) → the text below the field."""
    found = {}
    for node in ast.parse(Path(run.__file__).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            for field, text in pairwise(node.body):
                if (
                    isinstance(field, ast.AnnAssign)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                ):
                    found[node.name, ast.unparse(field.target)] = str(text.value.value)
    return found


def _entry(header: Header) -> list[str]:
    lines = [f"### {header.name}", "", header.title[:1].upper() + header.title[1:], ""]
    if header.arguments:
        lines += ["Arguments:", "", *_table(header.arguments), ""]
    if header.columns:
        lines += ["Columns:", "", *_table(header.columns), ""]
    elif header.result:
        lines += [f"Gives {header.result}", ""]
    if header.inputs:
        lines += [f"Reads {header.inputs}.", ""]
    if header.assumes:
        lines += [f"Assumes: {header.assumes}", ""]
    return [*lines, "```sql", header.example, "```", ""]


def _table(fields: Iterable[Field]) -> list[str]:
    return [
        "| name | type | meaning |",
        "|---|---|---|",
        *(f"| {field.name} | {field.type} | {_cell(field.text)} |" for field in fields),
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


PAGES = {"queries.md": queries_page, "lake.md": lake_page, "run_toml.md": run_toml_page}
"""What makes each page of docs/."""


def main(arguments: list[str]) -> int:
    """Write the pages into the folder that is named."""
    folder = Path(arguments[0] if arguments else "docs")
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
