"""Record lines of `rdma-ebpf-csv-1` and its forerunners to tables of raw records (`_ebpf.INPUTS`).

Arrow parses the lines that the collector prints, a kind at a time: in a third of the time of a reader of all kinds.
It takes whole lines of plain numbers, and reads them as DuckDB would. What it refuses, and what an older program
printed, goes through queries/sources/ebpf/_ebpf_fields.sql, which knows every layout and form.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pipeline.model import library
from pipeline.sources._ebpf import CLASSES, INPUTS, KINDS, input_table, like, pick, whole
from pipeline.sources._text import Lines, code_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True)
class _Layout:
    """Where lines of `fields` fields, of these kinds, have the columns of an input table.

    checked: fields that must be numbers as well. columns and checked: positions, where the kind is 0.
    """

    table: str
    kinds: tuple[bytes, ...]
    fields: int
    columns: Mapping[str, int]
    checked: tuple[int, ...] = ()


_POST = {"enter_ns": 1, "exit_ns": 2, "pid": 3, "tid": 4, "cpu": 5, "qp": 6, "wr_id": 7, "opcode": 8}
_LAYOUTS = (
    _Layout("posts_in", (b"PO",), 17, _POST | {"n_wr": 12, "flags": 14, "bytes": 15, "ret": 16}, (9,)),
    _Layout(
        "polls_in",
        (b"PC",),
        12,
        {"at_ns": 1, "pid": 2, "tid": 3, "wr_id": 7, "status": 8, "opcode": 9, "qp": 11},
        (4, 5),
    ),
    _Layout("switches_in", (b"WK",), 6, {"at_ns": 1, "tid": 2, "other": 4}, (3, 5)),
    # Behind SO's core is the state of the thread.
    _Layout("switches_in", (b"SI", b"SO"), 5, {"at_ns": 1, "tid": 2, "cpu": 3, "other": 4}),
)
_MOST = {"enter_ns": (1 << 61) - 1, "exit_ns": (1 << 61) - 1, "at_ns": (1 << 61) - 1, "bytes": 1 << 50}
"""Beyond that a line is no record (`_ebpf_fields` says so one by one)."""
_C_INTS = ("ret", "status")
"""Columns of type `int` in C, which may have been printed unsigned."""

_PIECE_LINES = 1 << 16
"""Lines that are parsed at a time."""
_FEW_LINES = 1 << 10
"""Where Arrow refuses a piece it is halved, down to this."""

_VIEWS = {
    "posts_in": "_ebpf_csv_posts",
    "polls_in": "_ebpf_csv_polls",
    "calls_in": "_ebpf_csv_calls",
    "switches_in": "_ebpf_csv_switches",
}
_REJECTS = "SELECT line, any_value(csv_line) FROM reject_errors GROUP BY line ORDER BY line"


@dataclass(frozen=True)
class Records:
    """What a block's record lines are.

    tables: raw records by name of `INPUTS`, in the file's order, where there are any. times: of good records in the
    file's order, ns. bad_lines: those that are no record.
    """

    tables: Mapping[str, pa.Table]
    times: NDArray[np.int64]
    bad_lines: tuple[bytes, ...] = ()


class LineParser:
    """Parses a file's record lines, block by block."""

    def __init__(self) -> None:
        self._first = 0
        self._any: _AnyLayout | None = None

    def close(self) -> None:
        if self._any is not None:
            self._any.close()

    def parse(self, lines: Lines) -> Records:
        """Records of the next block."""
        import numpy as np
        import pyarrow as pa

        times = np.zeros(lines.start.size, np.int64)
        tables: dict[str, list[pa.Table]] = {name: [] for name in INPUTS}
        odd = lines.record.copy()
        # For Arrow a carriage return ends a line.
        for layout in () if b"\r" in lines.text else _LAYOUTS:
            for rows, columns in _parsed(layout, lines):
                odd[rows] = False
                times[rows] = columns["exit_ns" if layout.table == "posts_in" else "at_ns"].to_numpy()
                tables[layout.table].append(_raw(layout, lines.kind[rows], self._first + rows, columns))
        bad_lines: tuple[bytes, ...] = ()
        if odd.any():
            self._any = self._any or _AnyLayout()
            where = np.flatnonzero(odd)
            found, at, place, bad_lines = self._any.read(lines.pick(where), where.size)
            times[where[place]] = at
            for name, table in found.items():
                line = pa.array(self._first + where[table["line"].to_numpy()])
                tables[name].append(table.set_column(table.column_names.index("line"), "line", line))
        self._first += lines.start.size
        in_order = {name: _in_file_order(parts) for name, parts in tables.items() if parts}
        return Records(in_order, times[times > 0], bad_lines)


def _parsed(layout: _Layout, lines: Lines) -> Iterator[tuple[NDArray[np.int64], dict[str, pa.Array]]]:
    """(positions, columns) of the lines of this layout, in pieces, as far as Arrow takes them."""
    import numpy as np

    of_kind = lines.of_kind(layout.kinds)
    pieces = [of_kind[i : i + _PIECE_LINES] for i in range(0, of_kind.size, _PIECE_LINES)]
    while pieces:
        rows = pieces.pop(0)
        columns = _columns(layout, lines.pick(rows))
        if columns is not None:
            yield rows, columns
        elif rows.size > _FEW_LINES:
            pieces[:0] = np.array_split(rows, 2)


def _columns(layout: _Layout, text: pa.Buffer) -> dict[str, pa.Array] | None:
    """Columns of lines of this layout; None if any of them is none."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    kinds = {f"c{position}": pa.int64() for position in (*layout.columns.values(), *layout.checked)}
    if "wr_id" in layout.columns:
        kinds[f"c{layout.columns['wr_id']}"] = pa.uint64()
    try:
        found = csv.read_csv(
            pa.BufferReader(text),
            csv.ReadOptions(
                use_threads=False,
                block_size=text.size + 1,
                column_names=[f"c{position}" for position in range(layout.fields)],
            ),
            csv.ParseOptions(quote_char=False, double_quote=False, ignore_empty_lines=False),
            csv.ConvertOptions(column_types=kinds, include_columns=list(kinds), null_values=[], check_utf8=False),
        )
    except pa.ArrowInvalid:
        return None
    for position, column in zip(kinds, found.columns, strict=True):
        # A hexadecimal number from 2^63 on comes out negative; nothing but a return value is.
        if position != f"c{layout.columns.get('ret')}" and pc.min(column).as_py() < 0:
            return None
    for name, most in _MOST.items():
        if name in layout.columns and pc.max(found[f"c{layout.columns[name]}"]).as_py() > most:
            return None
    return {name: whole(found[f"c{position}"]) for name, position in layout.columns.items()}


def _raw(layout: _Layout, kind: NDArray[np.uint16], line: NDArray[np.int64], columns: dict[str, pa.Array]) -> pa.Table:
    """Columns of a layout as a table of INPUTS."""
    import numpy as np
    import pyarrow as pa

    given: dict[str, Any] = {"line": line, **columns}
    for name in _C_INTS:
        if name in columns:
            given[name] = _as_c_int(columns[name].to_numpy())
    if layout.table == "switches_in":
        out = kind == code_of(b"SO")
        number = columns["other"].to_numpy()
        given["kind"] = pick(KINDS, np.select([kind == code_of(b"SI"), out], [0, 1], 2))
        given["class"] = pick(CLASSES, np.select([(number & 0xB0) != 0, (number & 0xFF) == 0], [2, 0], 1), ~out)
        given["other"] = pa.array(number, mask=out)
        given["fresh"] = True
    return input_table(layout.table, given, line.size)


def _as_c_int(value: NDArray[np.int64]) -> NDArray[np.int64]:
    import numpy as np

    return np.where((value >= 1 << 31) & (value < 1 << 32), value - (1 << 32), value)


def _in_file_order(parts: list[pa.Table]) -> pa.Table:
    import numpy as np
    import pyarrow as pa

    table = pa.concat_tables(parts)
    ends = [(part["line"][0].as_py(), part["line"][-1].as_py()) for part in parts]
    if any(after < before for (_, before), (after, _) in pairwise(ends)):
        table = table.take(pa.array(np.argsort(table["line"].to_numpy(), kind="stable")))
    return table


class _AnyLayout:
    """Reads lines of all layouts and forms."""

    def __init__(self) -> None:
        import duckdb

        # One thread: a block is too small to gain from more.
        self._connection = duckdb.connect(
            config={"threads": 1, "memory_limit": "512MB", "enable_external_file_cache": False}
        )
        self._connection.execute(library.sql("_ebpf_int"))
        self._file = _BlockFile()
        self._has_views = False

    def close(self) -> None:
        self._connection.close()
        self._file.close()

    def read(
        self, text: pa.Buffer, count: int
    ) -> tuple[dict[str, pa.Table], NDArray[np.int64], NDArray[np.int64], tuple[bytes, ...]]:
        """(tables of INPUTS, times, the lines of these times, lines that are no record); lines from 0 to count - 1."""
        import numpy as np
        import pyarrow as pa

        connection = self._connection
        self._file.write(text)
        connection.execute("SET VARIABLE ebpf_block_path = ?", [self._file.path])
        connection.execute(library.sql("_ebpf_fields"))
        if not self._has_views:
            for query in (*_VIEWS.values(), "_ebpf_bad_rows"):
                connection.execute(library.sql(query))
            self._has_views = True
        rejects = connection.execute(_REJECTS).fetchall()
        connection.execute("DROP TABLE IF EXISTS reject_errors")
        connection.execute("DROP TABLE IF EXISTS reject_scans")
        found = connection.execute(
            """SELECT CASE WHEN c0 = 'PO' THEN coalesce(c2, c1) WHEN length(c0) = 2 THEN c1 ELSE 0 END AS at_ns
            FROM _ebpf_fields ORDER BY rowid"""
        ).fetchnumpy()["at_ns"]
        times = np.ma.filled(found, 0)
        place = np.delete(np.arange(count), [line - 1 for line, _ in rejects if line <= count])
        if place.size != times.size:
            # A carriage return between: DuckDB counted its lines, not ours.
            place = np.minimum(np.arange(times.size), count - 1)
        tables = {}
        known = 0
        for name, view in _VIEWS.items():
            table = like(name, connection.table(view).to_arrow_table())
            # libbpf's switch is one line and two rows, of which one names a process.
            known += table["pid"].null_count if name == "switches_in" else table.num_rows
            if table.num_rows:
                at, line = table.column_names.index("line"), table["line"].to_numpy()
                order = pa.array(np.argsort(line, kind="stable"))
                tables[name] = table.set_column(at, "line", pa.array(place[line])).take(order)
        bad = [line for _, line in rejects]
        if known != times.size:
            bad += [line for (line,) in connection.execute("FROM _ebpf_bad_rows").fetchall()]
        return tables, times, place, tuple(str(line).encode() for line in bad)


class _BlockFile:
    """A file for one block at a time that DuckDB can open by name: in memory where the system can."""

    def __init__(self) -> None:
        self._file: IO[bytes] = (
            os.fdopen(os.memfd_create("ebpf_block"), "w+b")
            if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()
            else tempfile.NamedTemporaryFile(suffix=".csv")  # noqa: SIM115 - `close` closes it
        )
        name = self._file.name
        self.path = name if isinstance(name, str) else f"/proc/self/fd/{name}"

    def close(self) -> None:
        self._file.close()

    def write(self, text: pa.Buffer) -> None:
        """Replace its content."""
        self._file.seek(0)
        self._file.truncate()
        self._file.write(text)
        self._file.flush()
