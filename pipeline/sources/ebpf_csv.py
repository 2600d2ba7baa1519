"""Records of `rdma-ebpf-csv-1` and its forerunners: bpftrace (as printed, or `-f json`), libbpf, bcc.

One record a line, comma-separated: a kind in two letters, then integers (docs/ebpf.md). A recorder's stdout also
holds banners, maps, blank lines, `Lost N events`, and a last line cut short. Lines that should be a record and
are not, are counted and kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.model.capture import Account, Capture, Clock, Status
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources import _text
from pipeline.sources._ebpf import Assembler, input_table, rows_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

KIND = "ebpf_csv"
HEAD_BYTES = 1 << 20
SAMPLES = 16
SAMPLE_BYTES = 256 << 10
ASSEMBLE_BYTES = 24 << 20
"""Text behind one batch of rows. Memory is a small multiple of it."""

_POST = {
    "enter_ns": 1,
    "exit_ns": 2,
    "pid": 3,
    "tid": 4,
    "cpu": 5,
    "qp": 6,
    "wr_id": 7,
    "opcode": 8,
    "n_wr": 12,
    "flags": 14,
    "bytes": 15,
    "ret": 16,
}
_CALL = {"at_ns": 1, "pid": 2, "tid": 3, "cpu": 4}
_ENTER = {**_CALL, "qp": 5, "wr_id": 6, "opcode": 7, "flags": 8}


@dataclass(frozen=True)
class _Layout:
    """Where a record's columns are. `constants` are columns with one value."""

    table: str
    columns: Mapping[str, int]
    constants: Mapping[str, str] = field(default_factory=dict)


_LAYOUTS: dict[tuple[bytes, int], tuple[_Layout, ...]] = {
    (b"PO", 17): (_Layout("posts_in", _POST),),
    (b"PC", 12): (
        _Layout("polls_in", {"at_ns": 1, "pid": 2, "tid": 3, "wr_id": 7, "status": 8, "opcode": 9, "qp": 11}),
    ),
    (b"WK", 6): (_Layout("switches_in", {"at_ns": 1, "tid": 2, "other": 4}, {"kind": "wake"}),),
    (b"SI", 5): (_Layout("switches_in", {"at_ns": 1, "tid": 2, "cpu": 3, "other": 4}, {"kind": "in"}),),
    (b"SO", 5): (_Layout("switches_in", {"at_ns": 1, "tid": 2, "cpu": 3, "state": 4}, {"kind": "out"}),),
    (b"DB", 5): (_Layout("calls_in", _CALL, {"kind": "doorbell"}),),
    # Entry and return as separate records: bpftrace probes without the join.
    (b"PS", 13): (_Layout("calls_in", {**_ENTER, "bytes": 10, "chained": 12}, {"kind": "enter"}),),
    (b"PX", 7): (_Layout("calls_in", {**_CALL, "ret": 6}, {"kind": "exit"}),),
    (b"PC", 11): (
        _Layout("polls_in", {"at_ns": 1, "pid": 2, "tid": 3, "wr_id": 6, "status": 7, "opcode": 8, "qp": 10}),
    ),
    (b"SI", 4): (_Layout("switches_in", {"at_ns": 1, "tid": 2, "cpu": 3}, {"kind": "in"}),),
    # libbpf: one struct for every kind; a switch names both threads, and the current one is the one that leaves.
    (b"PS", 12): (_Layout("calls_in", {**_ENTER, "bytes": 9}, {"kind": "enter"}),),
    (b"PX", 12): (_Layout("calls_in", {**_CALL, "ret": 11}, {"kind": "exit"}),),
    (b"WK", 12): (_Layout("switches_in", {"at_ns": 1, "other": 3, "tid": 5}, {"kind": "wake"}),),
    (b"SW", 12): (
        _Layout(
            "switches_in",
            {"at_ns": 1, "pid": 2, "cpu": 4, "tid": 5, "state": 8, "preempted": 9},
            {"kind": "out"},
        ),
        _Layout("switches_in", {"at_ns": 1, "cpu": 4, "other": 5, "tid": 7}, {"kind": "in"}),
    ),
    (b"HB", 3): (),
}
_LIBBPF = {(b"PS", 12), (b"PX", 12), (b"WK", 12), (b"SW", 12)}
_PRESENT = {"posts_in": "posts", "calls_in": "posts", "polls_in": "completions", "switches_in": "sched"}

_RECORD = re.compile(rb"^(?:META,(?:\d|end\b)|(?:PO|PC|WK|SI|SO|HB|DB|PS|PX|SW),\d{6,20},)", re.MULTILINE)
_META = re.compile(rb"^META,(\d{1,19}),([a-z_]+),(.*)$")
_OPEN_META = re.compile(rb"^META,(?:\d{1,19}|end\b.*)(?:,.*)?$")
_LOST = re.compile(rb"^\s*(?:WARNING: )?Lost (\d{1,18}) events", re.IGNORECASE)
_LIBBPF_END = re.compile(rb"^META,end,events=(\d+),lost=(\d{1,18})$")
_QP_SEEN = re.compile(rb"^META,(\d{1,18}),qp,(\d{1,10})/(\d{1,10})/([^/]*)(?:/(\d{0,10}))?$")
_NOISE = re.compile(rb"^\s*$|^Attach(?:ing|ed) \d+ probes?|^@|^\s*(?:\[|\(|\.\.\.)[-\d\[\]().,KMGTPk ]+\|")
_JSON_HEAD = re.compile(
    rb'^\s*\{\s*"type"\s*:\s*"(?:attached_probes|printf|lost_events|map|hist|lhist|stats|time|value|tseries)"'
)
_PRINTF = re.compile(rb'\{\s*"type"\s*:\s*"printf"\s*,\s*"data"\s*:\s*"([^"\\]*)(?:\\n)?"\s*\}')
_JSON_START = b'{"type": "printf", "data": "'
_JSON_END = b'\\n"}\n'

_CLASSES = ("runnable", "blocked", "dead")
_DEAD_STATES = 0x10 | 0x20 | 0x80
"""EXIT_DEAD and EXIT_ZOMBIE as sched_switch prints them, TASK_DEAD as the task itself holds it."""
_ABSURD_NS = 3_600_000_000_000
"""No block of records spans more."""
_STEP_BACK_NS = 10_000_000_000
_SLEEP_STATES = 0xFF
"""Above these bits are TASK_REPORT_MAX (preempted) and modifiers; without any of these a thread is still runnable."""


def claims(path: Path) -> bool:
    """A text file with records, or with bpftrace's JSON objects, near its start."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(64 << 10)
    if b"\0" in head[:1024]:
        return False
    return bool(
        _RECORD.search(head)
        or _JSON_HEAD.match(head)
        or re.search(rb'^\{"type": "printf", "data": "[A-Z]{2,4},\d', head, re.MULTILINE)
    )


@dataclass
class _Meta:
    """What META records and the layouts of a part of the file say."""

    values: dict[str, str] = field(default_factory=dict)
    layouts: set[tuple[bytes, int]] = field(default_factory=set)
    libbpf: bool = False
    lines: int = 0

    @property
    def tool(self) -> str:
        said = self.values.get("tool", "").split()
        if said:
            return said[0].lower()
        return "libbpf" if self.libbpf else "bpftrace"

    @property
    def clock(self) -> Clock:
        said = self.values.get("clock", "").strip().lower()
        if said in (Clock.BOOTTIME, Clock.MONOTONIC, Clock.REALTIME):
            return Clock(said)
        # bpftrace's nsecs is the boot clock; bpf_ktime_get_ns in libbpf and bcc is the monotonic one.
        return Clock.BOOTTIME if self.tool == "bpftrace" else Clock.MONOTONIC

    @property
    def probe_cost_ns(self) -> int | None:
        said = self.values.get("probe_cost_ns", "").strip()
        return int(said) if said.isdigit() else None

    def scan(self, text: bytes) -> None:
        """Add what whole lines of `text` say."""
        for line in _unwrap(text).split(b"\n"):
            self.lines += 1
            if line.startswith(b"META,"):
                if meta := _META.match(line):
                    self.values[meta[2].decode()] = meta[3].decode("utf-8", "replace").strip()
                self.libbpf |= _LIBBPF_END.match(line) is not None
            elif line[2:3] == b",":
                fields = line.split(b",")
                layout = (fields[0], len(fields))
                self.layouts.add(layout)
                self.libbpf |= layout in _LIBBPF


def _scan(path: Path) -> tuple[_Meta, int]:
    """META records and layouts from the file's head, tail and samples between; and an estimate of its lines."""
    size = path.stat().st_size
    meta = _Meta()
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        meta.scan(head)
        lines = max(meta.lines, 1)
        if size > len(head):
            span = size - len(head)
            for sample in range(1, SAMPLES + 1):
                file.seek(max(len(head), len(head) + span * sample // SAMPLES - SAMPLE_BYTES))
                meta.scan(file.read(SAMPLE_BYTES).partition(b"\n")[2])
            return meta, lines * size // len(head)
    return meta, lines


def inspect(path: Path, config: RunConfig) -> Capture:
    """Tool and clock, from the file's head, tail and samples. Raises UnusableInput without a record.

    It lists no processes: to find every one would be to read the file. Rows are known by pid.
    """
    meta, lines = _scan(path)
    known = {layout for layout in meta.layouts if layout in _LAYOUTS}
    present = sorted({_PRESENT[part.table] for layout in known for part in _LAYOUTS[layout]})
    if not present:
        raise UnusableInput(
            "no record of rdma-ebpf-csv-1 in it",
            where=path,
            todo="was it recorded with the program that `mfuloss collect print` gives?",
        )
    absent = [name for name in ("posts", "completions", "sched") if name not in present]
    if "schema" in meta.values and "end" not in meta.values and not meta.libbpf:
        absent.append("end")
    notes = [] if meta.probe_cost_ns is not None else ["probe cost not calibrated: post times are upper bounds"]
    if "clock" not in meta.values:
        notes.append(f"the file does not name its clock: {meta.clock} is that of {meta.tool}")
    return Capture(
        path=path,
        kind=KIND,
        tool=meta.tool,
        tool_version=meta.values.get("tool_version"),
        host=meta.values.get("node") or meta.values.get("host"),
        clock=meta.clock,
        status=Status.OK,
        present=tuple(present),
        missing=tuple(absent),
        notes=tuple(notes),
        bytes=path.stat().st_size,
        row_estimate=lines,
    )


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Posts, completions, thread states, losses and queue pairs. ranks: pid → rank."""
    meta, _ = _scan(capture.path)
    account.probe_cost_ns = meta.probe_cost_ns
    account.lost_events = 0
    assembler = Assembler(
        node=node,
        ranks=ranks,
        source=meta.tool,
        probe_cost_ns=meta.probe_cost_ns,
        all_threads=not meta.libbpf,
    )
    reader = _Reader(node, account)
    try:
        with capture.path.open("rb") as file:
            is_json = b'"type"' in file.read(64 << 10)
        lead = b"{" if is_json else b""
        inputs: dict[str, list[pa.Table]] = {}
        waiting = 0
        for block, cut in _text.blocks(capture.path, lead=lead):
            account.bytes_done += len(block)
            waiting += len(block)
            reader.block(block, cut, inputs)
            for pid, qp, nic in reader.new_devices():
                assembler.queue_pair(pid, qp, nic)
            if waiting >= ASSEMBLE_BYTES:
                yield from assembler.block(inputs, last_ns=reader.last_ns)
                inputs, waiting = {}, 0
        yield from assembler.block(inputs, last_ns=reader.last_ns, final=True)
    finally:
        assembler.close()
    yield from reader.rest()
    if assembler.late_switches:
        account.partial(f"{assembler.late_switches} switch records came more than 250 ms late and were left out")


def _unwrap(block: bytes) -> bytes:
    """Records out of bpftrace's JSON objects, one a line; other objects stay as they are."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    if b'"printf"' not in block:
        return block
    block = block.replace(_JSON_END, b"\n").replace(_JSON_START, b"")
    # Whatever is spaced differently, or spread over lines, is rare.
    return _PRINTF.sub(rb"\1", block) if b'"printf"' in block else block


class _Reader:
    """State between blocks: line numbers, open losses, an object over several lines, queue pairs."""

    def __init__(self, node: str, account: Account) -> None:
        self.node = node
        self.account = account
        self.last_ns = 0
        self._line = 0
        self._before_ns: int | None = None
        self._first_ns: int | None = None
        self._open: list[tuple[int | None, int]] = []
        self._losses: list[tuple[int, int, int]] = []
        self._qps: list[tuple[int, int, int, str | None, int | None]] = []
        self._devices: list[tuple[int, int, str]] = []

    def block(self, block: bytes, cut: bool, inputs: dict[str, list[pa.Table]]) -> None:
        """Add the raw records of a block to the input tables."""
        import numpy as np

        lines = _text.split(_unwrap(block))
        codes = _text.two_letters(lines)
        record = np.zeros(codes.size, np.bool_)
        bad: list[int] = []
        timed = np.zeros(codes.size, np.int64)
        for (kind, n_fields), parts in _LAYOUTS.items():
            here = np.flatnonzero((codes == _text.code(kind)) & (lines.n_fields == n_fields))
            if not here.size:
                continue
            record[here] = True
            if not parts:
                at, good = _text.integers(lines, *_text.field(lines, here, 1))
                timed[here] = np.where(good, at.view(np.int64), 0)
            # Without its line feed the last number may be cut, and still look like one.
            wrong = (here == codes.size - 1) & cut
            values = {
                number: _text.integers(lines, *_text.field(lines, here, number))
                for number in sorted({n for part in parts for n in part.columns.values()})
            }
            for number, (value, good) in values.items():
                wrong |= ~good
                if number <= 2 and any(
                    part.columns.get(c) == number for part in parts for c in ("at_ns", "enter_ns", "exit_ns")
                ):
                    wrong |= value > np.uint64(0x7FFF_FFFF_FFFF_FFFF)
            bad.extend(here[wrong].tolist())
            kept = here[~wrong]
            for part in parts:
                columns = {name: values[number][0][~wrong] for name, number in part.columns.items()}
                inputs.setdefault(part.table, []).append(self._table(part, columns, kept))
                timed[kept] = columns.get("exit_ns", columns.get("at_ns")).view(np.int64)  # type: ignore[union-attr]
        # A record of another layout still dates the losses beside it.
        unknown = np.flatnonzero(~record & (codes != 0) & (lines.n_fields > 2))
        at, good = _text.integers(lines, *_text.field(lines, unknown, 1))
        timed[unknown] = np.where(good, at.view(np.int64), 0)
        others = np.flatnonzero(~record)
        last = codes.size - 1
        if cut and last in bad:
            self.account.partial("the last line is cut short")
        for index in sorted(bad):
            self.account.bad_line(lines.line(index))
        self._others(lines, others, timed, cut)
        self._follow(timed[timed > 0])
        self._line += codes.size

    def _follow(self, timed: NDArray[np.int64]) -> None:
        """Move last_ns on. One absurd time must not: it would make everything behind it look late."""
        import numpy as np

        if timed.size:
            typical = timed[timed <= np.median(timed) + _ABSURD_NS]
            latest = np.maximum.accumulate(np.maximum(typical, self.last_ns))
            if (latest - typical).max() > _STEP_BACK_NS:
                self.account.partial("its times step back by more than 10 s: several recordings, or a clock that wraps")
            self.last_ns = int(latest[-1])

    def _table(self, part: _Layout, columns: dict[str, NDArray[np.uint64]], kept: NDArray[np.int64]) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        out: dict[str, Any] = {
            name: value if name == "wr_id" else _signed(value, bits=32 if name in ("ret", "status") else 64)
            for name, value in columns.items()
        }
        out |= part.constants
        if "line" in _columns(part.table):
            out["line"] = kept + self._line
        if part.table == "switches_in":
            out["fresh"] = True
        if "state" in out:
            state = out.pop("state")
            dead = (state & _DEAD_STATES) != 0
            runnable = ((state & _SLEEP_STATES) == 0) | (out.pop("preempted", np.int64(0)) != 0)
            out["class"] = pa.array(_CLASSES).take(pa.array(np.where(dead, 2, np.where(runnable, 0, 1))))
        if "chained" in out:
            # Only the chain's existence is recorded, not its length.
            out["n_wr"] = _null_where(out.pop("chained") != 0)
        return input_table(part.table, out, kept.size)

    def _others(self, lines: _text.Lines, others: NDArray[np.int64], timed: NDArray[np.int64], cut: bool) -> None:
        """META, losses, banners, objects, and what is none of these."""
        import numpy as np

        records = np.flatnonzero(timed > 0)
        last = lines.start.size - 1
        pending: list[bytes] = []
        previous = -1

        def give_up() -> None:
            for line in pending:
                self.account.bad_line(line)
            pending.clear()

        def position(index: int) -> int:
            return int(np.searchsorted(records, index))

        if records.size:
            for before, count in self._open:
                self._add_loss(before, int(timed[records[0]]), count)
            self._open.clear()
        for index in others.tolist():
            line = lines.line(index)
            inside = pending and index == previous + 1 and len(pending) < 10_000 and not _LOST.match(line)
            previous = index
            if not (inside and line.strip()) or line.startswith(b"{"):
                give_up()
                inside = False
            if inside or line.startswith(b"{"):
                pending.append(line)
                if (lost_events := _object(pending)) is not None:
                    self._lose(lost_events, timed, records, position(index))
            elif lost := _LOST.match(line):
                self._lose(int(lost[1]), timed, records, position(index))
            elif end := _LIBBPF_END.match(line):
                if int(end[2]):
                    # A ring buffer that was full does not say when.
                    self.account.lost_events = (self.account.lost_events or 0) + int(end[2])
                    self._losses.append((-1, -1, int(end[2])))
            elif seen := _QP_SEEN.match(line):
                self._queue_pair(seen)
            elif _OPEN_META.match(line) or _NOISE.match(line):
                if cut and index == last and line:
                    self.account.bad_line(line)
                    self.account.partial("the last line is cut short")
            else:
                self.account.bad_line(line)
                if cut and index == last:
                    self.account.partial("the last line is cut short")
        give_up()
        if records.size:
            self._before_ns = int(timed[records[-1]])
            if self._first_ns is None:
                self._first_ns = int(timed[records].min())

    def _lose(self, count: int, timed: NDArray[np.int64], records: NDArray[np.int64], position: int) -> None:
        self.account.lost_events = (self.account.lost_events or 0) + count
        before = int(timed[records[position - 1]]) if position else self._before_ns
        if position < records.size:
            self._add_loss(before, int(timed[records[position]]), count)
        else:
            self._open.append((before, count))

    def _add_loss(self, before: int | None, after: int, count: int) -> None:
        start = after if before is None else before
        self._losses.append((min(start, after), max(start, after), count))

    def _queue_pair(self, seen: re.Match[bytes]) -> None:
        at_ns, pid, qp = int(seen[1]), int(seen[2]), int(seen[3])
        nic = seen[4].decode("utf-8", "replace") or None
        peer = int(seen[5] or 0) or None
        self._qps.append((at_ns, pid, qp, nic, peer))
        if nic:
            self._devices.append((pid, qp, nic))

    def new_devices(self) -> list[tuple[int, int, str]]:
        """(pid, qp, device) seen since the last call."""
        devices, self._devices = self._devices, []
        return devices

    def rest(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Losses and queue pairs, when everything is read; and the account's verdict."""
        for before, count in self._open:
            self._add_loss(before, self.last_ns, count)
        self._open.clear()
        first_ns = self._first_ns or 0
        losses = [(first_ns, self.last_ns, n) if start < 0 else (start, end, n) for start, end, n in self._losses]
        yield from rows_of(
            "losses",
            {
                "node": [self.node] * len(losses),
                "source": ["ebpf"] * len(losses),
                "start_ns": [start for start, _, _ in losses],
                "end_ns": [end for _, end, _ in losses],
                "lost_events": [count for _, _, count in losses],
            },
        )
        yield from rows_of(
            "rdma_qps",
            {
                "node": [self.node] * len(self._qps),
                "pid": [pid for _, pid, _, _, _ in self._qps],
                "nic": [nic for _, _, _, nic, _ in self._qps],
                "qp": [qp for _, _, qp, _, _ in self._qps],
                "peer_qp": [peer for _, _, _, _, peer in self._qps],
                "at_ns": [at for at, _, _, _, _ in self._qps],
            },
        )
        if self.account.lost_events:
            self.account.partial(f"the recorder lost {self.account.lost_events} events")
        if self.account.bad_line_count:
            self.account.partial(f"{self.account.bad_line_count} lines could not be read")


def _object(pending: list[bytes]) -> int | None:
    """Take the pending lines as a JSON object if they are one by now; events lost, if it says so."""
    if not pending[-1].rstrip().endswith(b"}"):
        return None
    try:
        value = json.loads(b"\n".join(pending))
    except (ValueError, RecursionError):
        return None
    pending.clear()
    if not (isinstance(value, dict) and value.get("type") == "lost_events" and isinstance(value.get("data"), dict)):
        return None
    events = value["data"].get("events")
    return events if isinstance(events, int) and 0 <= events < 1 << 60 else None


def _columns(table: str) -> Mapping[str, str]:
    from pipeline.sources._ebpf import INPUTS

    return INPUTS[table]


def _signed(value: NDArray[np.uint64], *, bits: int) -> NDArray[np.int64]:
    """Integers as they were before a tool printed them unsigned: 2^64-x, and for an `int` also 2^32-x, is -x."""
    import numpy as np

    out = value.view(np.int64)
    return out if bits == 64 else np.where((out >= 1 << 31) & (out < 1 << 32), out - (1 << 32), out)


def _null_where(missing: NDArray[np.bool_]) -> Any:
    import numpy as np
    import pyarrow as pa

    return pa.array(np.ones(missing.size, np.int64), mask=missing)
