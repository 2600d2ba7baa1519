"""Answers of the lake as text: query results in four formats, the SQL prompt, lists of runs."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.lake.connect import LakeConnection, connect
from pipeline.lake.maintenance import RunInfo
from pipeline.model.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_ROWS = 1_000
"""Rows that the table format shows; the other formats give all."""


def answer(
    lake: str | Path,
    query: str,
    parameters: dict[str, Any] | None = None,
    *,
    format: str = "table",
    output: Path | None = None,
) -> None:
    """Run one query and write its result. Raises UsageError with DuckDB's own first line where it can't run."""
    if format == "parquet" and output is None:
        raise UsageError("--format parquet needs a file", todo="add -o FILE")
    with connect(lake) as connection:
        if format == "parquet" and output is not None:
            _parquet(connection, query, output, parameters)
            return
        text = render(connection, query, format, parameters)
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write it: {error.strerror}", where=output) from None


def render(connection: LakeConnection, query: str, format: str, parameters: dict[str, Any] | None = None) -> str:
    """A query's result as text: table (aligned, at most TABLE_ROWS rows), csv, or json (one array of objects)."""
    names, rows = _fetch(connection, query, TABLE_ROWS + 1 if format == "table" else None, parameters)
    if format == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([["" if value is None else _cell(value) for value in row] for row in rows])
        return out.getvalue()
    if format == "json":
        lines = [
            json.dumps(dict(zip(_unique(names), (_json(value) for value in row), strict=True)), ensure_ascii=False)
            for row in rows
        ]
        return "[" + ",\n ".join(lines) + "]\n"
    return table(names, rows)


def table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Columns aligned by their type, without a frame."""
    shown = rows[:TABLE_ROWS]
    cells = [["NULL" if value is None else _clean(_cell(value)) for value in row] for row in shown]
    widths = [max(len(name), *(len(row[i]) for row in cells)) if cells else len(name) for i, name in enumerate(names)]
    right = [
        any(row[i] is not None for row in shown)
        and all(
            row[i] is None or (isinstance(row[i], int | float | Decimal) and not isinstance(row[i], bool))
            for row in shown
        )
        for i in range(len(names))
    ]

    def line(values: Sequence[str]) -> str:
        padded = (
            value.rjust(width) if to_right else value.ljust(width)
            for value, width, to_right in zip(values, widths, right, strict=True)
        )
        return "  ".join(padded).rstrip()

    lines = [line(names), line(["-" * width for width in widths]), *(line(row) for row in cells)]
    if len(rows) > len(shown):
        lines.append(f"(the first {len(shown)} rows; --format csv gives all)")
    return "\n".join(lines) + "\n"


def prompt(lake: str | Path) -> None:
    """Read statements that end in ';' from the terminal or stdin until end of file or .quit."""
    interactive = sys.stdin.isatty()
    with connect(lake) as connection:
        if interactive:
            import readline  # noqa: F401 - importing it gives input() history and editing

            print("Statements end with ';'. .tables lists tables, .quit ends.", file=sys.stderr)  # noqa: T201
        pending = ""
        while True:
            try:
                line = input(("   ...> " if pending else "lake> ") if interactive else "")
            except EOFError:
                break
            except KeyboardInterrupt:
                pending = ""
                print(file=sys.stderr)  # noqa: T201
                continue
            word = line.strip().lower()
            if not pending and word in (".quit", ".exit", "quit", "exit"):
                return
            if not pending and word == ".tables":
                line = "SELECT view_name AS name FROM duckdb_views() WHERE NOT internal ORDER BY 1;"
            pending += line + "\n"
            if line.rstrip().endswith(";"):
                _respond(connection, pending, interactive)
                pending = ""
        if pending.strip():
            _respond(connection, pending, interactive)


def _respond(connection: LakeConnection, query: str, interactive: bool) -> None:
    try:
        sys.stdout.write(render(connection, query, "table"))
        sys.stdout.flush()
    except UsageError as error:
        if not interactive:
            raise
        print(error.line(), file=sys.stderr)  # noqa: T201


def _fetch(
    connection: LakeConnection, query: str, limit: int | None, parameters: dict[str, Any] | None
) -> tuple[list[str], list[tuple[Any, ...]]]:
    import duckdb

    try:
        cursor = connection.execute(query, parameters or None)
        names = [column[0] for column in cursor.description or []]
        rows = cursor.fetchall() if limit is None else cursor.fetchmany(limit)
    except duckdb.Error as error:
        raise UsageError(_message(error), todo="check the SQL") from None
    return names, rows


def _parquet(connection: LakeConnection, query: str, output: Path, parameters: dict[str, Any] | None) -> None:
    import duckdb
    import pyarrow.parquet as pq

    try:
        relation = connection.sql(query, params=parameters) if parameters else connection.sql(query)
        if relation is None:
            raise UsageError("the statement has no result to write")
        reader: pa.RecordBatchReader = relation.to_arrow_reader(100_000)
        with pq.ParquetWriter(output, reader.schema, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch)
    except duckdb.Error as error:
        raise UsageError(_message(error), todo="check the SQL") from None
    except OSError as error:
        raise UsageError(f"can't write it: {error.strerror or error}", where=output) from None


def _message(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2] if len(lines) > 1 and not lines[1].startswith("LINE") else lines[:1])


def _unique(names: Sequence[str]) -> list[str]:
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return result


def _cell(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _clean(text: str) -> str:
    """Control characters shown, not sent to the terminal: trace files are untrusted."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _json(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, dict):
        return {str(key): _json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json(each) for each in value]
    return str(value)


def run_list(runs: Sequence[RunInfo], format: str = "text") -> str:
    """`mfuloss lake list`."""
    if format == "json":
        return json.dumps([vars(info) for info in runs], indent=1) + "\n"
    rows = [
        (
            info.run,
            _utc(info.committed_ns),
            info.captures,
            info.unusable,
            info.rows,
            size_text(info.bytes),
            "yes" if info.events else "dropped",
        )
        for info in runs
    ]
    total = f"{len(runs)} {'run' if len(runs) == 1 else 'runs'}, {size_text(sum(info.bytes for info in runs))}\n"
    return table(("run", "committed (UTC)", "captures", "unusable", "rows", "size", "events"), rows) + total


def run_details(details: dict[str, Any], format: str = "text") -> str:
    """`mfuloss lake info`."""
    if format == "json":
        return json.dumps(details, indent=1, ensure_ascii=False) + "\n"
    head = [
        f"run        {details['run']}",
        f"committed  {_utc(details['committed_ns'])} UTC",
        f"size       {size_text(details['bytes'])}, {details['rows']} rows"
        + (", events dropped" if details["events_dropped"] else ""),
    ]
    captures = table(
        ("capture", "kind", "tool", "host", "status", "rows", "reason"),
        [
            (c["name"], c["kind"], c["tool"], c["host"], c["status"], c["rows"], c["reason"] or "")
            for c in details["captures"]
        ],
    )
    tables = table(
        ("table", "files", "rows", "size"),
        [(t["table"], t["files"], t["rows"], size_text(t["bytes"])) for t in details["tables"]],
    )
    return "\n".join(head) + "\n\n" + captures + "\n" + tables


def size_text(size: int) -> str:
    """Bytes for people, in powers of 1024."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _utc(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S")
