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
from typing import TYPE_CHECKING

from pipeline.model.capture import Account, Capture, Clock, Status
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources import _text
from pipeline.sources._ebpf import Assembler, rows_of
from pipeline.sources._ebpf_lines import LineParser
from pipeline.sources.ahead import ahead

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

KIND = "ebpf_csv"
HEAD_BYTES = 1 << 20
SAMPLES = 16
SAMPLE_BYTES = 256 << 10

_PRESENT = {
    (b"PO", 17): "posts",
    (b"PS", 13): "posts",
    (b"PS", 12): "posts",
    (b"PC", 12): "completions",
    (b"PC", 11): "completions",
    (b"WK", 6): "sched",
    (b"WK", 12): "sched",
    (b"SI", 5): "sched",
    (b"SI", 4): "sched",
    (b"SO", 5): "sched",
    (b"SW", 12): "sched",
}
"""What a record shows, by its kind and number of fields; queries/sources/ebpf/_ebpf_fields.sql has the layouts."""
_KINDS = (b"PO", b"PC", b"WK", b"SI", b"SO", b"DB", b"PS", b"PX", b"SW")
_LIBBPF = {(b"PS", 12), (b"PX", 12), (b"WK", 12), (b"SW", 12)}

_RECORD = re.compile(rb"^(?:META,(?:\d|end\b)|(?:PO|PC|WK|SI|SO|HB|DB|PS|PX|SW),\d{6,20},)", re.MULTILINE)
_META = re.compile(rb"^META,(\d{1,19}),([a-z_]+),(.*)$")
_OPEN_META = re.compile(rb"^META,(?:\d{1,19}|end\b.*)(?:,.*)?$")
_LOST = re.compile(rb"^\s*(?:WARNING: )?Lost (\d{1,18}) events", re.IGNORECASE)
_LIBBPF_END = re.compile(rb"^META,end,events=(\d+),lost=(\d{1,18})$")
_HEARTBEAT = re.compile(rb"^HB,(\d{1,18}),")
_QP_SEEN = re.compile(rb"^META,(\d{1,18}),qp,(\d{1,10})/(\d{1,10})/([^/]*)(?:/(\d{0,10}))?$")
_TIMED = re.compile(rb"^(?:PO,\d{1,18},(\d{1,18})|[A-Z]{2},(\d{1,18}))(?:,|$)")
_ASCII = b"?" + bytes(range(1, 128)) + b"?" * 128
_NOISE = re.compile(rb"^\s*$|^Attach(?:ing|ed) \d+ probes?|^@|^\s*(?:\[|\(|\.\.\.)[-\d\[\]().,KMGTPk ]+\|")
_JSON_HEAD = re.compile(
    rb'^\s*\{\s*"type"\s*:\s*"(?:attached_probes|printf|lost_events|map|hist|lhist|stats|time|value|tseries)"'
)
_PRINTF = re.compile(rb'\{\s*"type"\s*:\s*"printf"\s*,\s*"data"\s*:\s*"([^"\\]*)(?:\\n)?"\s*\}')
_JSON_WRAPPER = (b'{"type": "printf", "data": "', b'\\n"}')

_ABSURD_NS = 3_600_000_000_000
"""No block of records spans more."""
_STEP_BACK_NS = 10_000_000_000


def claims(path: Path) -> bool:
    """A text file with records, or with bpftrace's JSON objects, near its start."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(64 << 10)
    if head.startswith(b"SQLite format 3"):
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

    def duration_ns(self, key: str) -> int | None:
        """A calibrated cost; None where the file doesn't say."""
        said = self.values.get(key, "").strip()
        return int(said) if said.isdecimal() and len(said) <= 18 else None

    def scan(self, text: bytes) -> None:
        """Add what whole lines of `text` say."""
        for line in _PRINTF.sub(rb"\1", text.replace(b"\r\n", b"\n")).split(b"\n"):
            if line.startswith(b"META,"):
                if meta := _META.match(line):
                    self.values[meta[2].decode()] = meta[3].decode("utf-8", "replace").strip()
                self.libbpf |= _LIBBPF_END.match(line) is not None
            elif line[2:3] == b",":
                fields = line.split(b",")
                layout = (fields[0], len(fields))
                self.layouts.add(layout)
                self.libbpf |= layout in _LIBBPF


def _scan(path: Path) -> _Meta:
    """META records and layouts from the file's head, tail and samples between."""
    size = path.stat().st_size
    meta = _Meta()
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        meta.scan(head)
        if size > len(head):
            span = size - len(head)
            for sample in range(1, SAMPLES + 1):
                file.seek(max(len(head), len(head) + span * sample // SAMPLES - SAMPLE_BYTES))
                meta.scan(file.read(SAMPLE_BYTES).partition(b"\n")[2])
    return meta


def inspect(path: Path, config: RunConfig) -> Capture:
    """Tool and clock, from the file's head, tail and samples. Raises UnusableInput without a record.

    It lists no processes: to find every one would be to read the file. Rows are known by pid.
    """
    meta = _scan(path)
    present = sorted({_PRESENT[layout] for layout in meta.layouts if layout in _PRESENT})
    if not present:
        raise UnusableInput(
            "no record of rdma-ebpf-csv-1 in it",
            where=path,
            todo="was it recorded with the program that `mfuloss collect print` gives?",
        )
    absent = [name for name in ("posts", "completions", "sched") if name not in present]
    if "schema" in meta.values and "end" not in meta.values and not meta.libbpf:
        absent.append("end")
    notes = (
        []
        if meta.duration_ns("probe_cost_ns") is not None
        else ["probe cost not calibrated: post times are upper bounds"]
    )
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
    )


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Posts, completions, thread states, losses and queue pairs. ranks: pid → rank."""
    meta = _scan(capture.path)
    account.probe_cost_ns = meta.duration_ns("probe_cost_ns")
    account.probe_exit_ns = meta.duration_ns("probe_exit_ns")
    account.probe_call_ns = meta.duration_ns("probe_call_ns")
    account.lost_events = 0
    assembler = Assembler(
        node=node,
        ranks=ranks,
        source=meta.tool,
        probe_cost_ns=account.probe_cost_ns,
        probe_exit_ns=account.probe_exit_ns,
        all_threads=not meta.libbpf,
    )
    reader = _Reader(node, account)
    blocks = ahead(reader.blocks(capture.path), depth=1)
    try:
        for block in blocks:
            for pid, qp, nic in block.devices:
                assembler.queue_pair(pid, qp, nic)
            assembler.take(block.tables)
            yield from assembler.block(last_ns=block.last_ns)
        yield from assembler.block(last_ns=reader.last_ns, final=True)
    finally:
        blocks.close()
        assembler.close()
    yield from reader.rest()
    if assembler.late_switches:
        account.partial(f"{assembler.late_switches} switch records came more than 250 ms late and were left out")


def _lines(path: Path) -> Iterator[tuple[_text.Lines | None, bytes]]:
    """(lines, a last line that is cut) of the file's blocks."""
    with path.open("rb") as file:
        is_json = b'"type"' in file.read(64 << 10)
    wrapper = _JSON_WRAPPER if is_json else None
    for block, is_cut in _text.blocks(path, lead=b"{" if is_json else b""):
        text = _plain(block)
        text, cut = _whole_lines(text) if is_cut else (text, b"")
        lines = _text.split(text, _KINDS, wrapper) if text else None
        if lines is not None and is_json and b'"printf"' in lines.unwrapped():
            # Spaced differently, or spread over lines: rare.
            lines = _text.split(_PRINTF.sub(rb"\1", text), _KINDS, wrapper)
        yield lines, cut


def _whole_lines(block: bytes) -> tuple[bytes, bytes]:
    """(the block's whole lines, the last one): without its line feed a last number may be cut, and look like one."""
    start = block.rfind(b"\n") + 1
    return block[:start], block[start:] if block[start:].strip() else b""


def _plain(block: bytes) -> bytes:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    return block if block.isascii() and b"\0" not in block else block.translate(_ASCII)


@dataclass(frozen=True)
class _Block:
    """A block's raw records; the latest time up to its end; (pid, qp, device) that it names."""

    tables: Mapping[str, pa.Table]
    last_ns: int
    devices: tuple[tuple[int, int, str], ...]


class _Reader:
    """Reads blocks; state between them: time, open losses, queue pairs."""

    def __init__(self, node: str, account: Account) -> None:
        self.node = node
        self.account = account
        self.last_ns = 0
        self._before_ns: int | None = None
        self._heartbeats: list[int] = []
        self._first_ns: int | None = None
        self._open: list[tuple[int | None, int]] = []
        self._losses: list[tuple[int, int, int]] = []
        self._qps: list[tuple[int, int, int, str | None, int | None]] = []
        self._devices: list[tuple[int, int, str]] = []

    def blocks(self, path: Path) -> Iterator[_Block]:
        """The file's blocks, parsed."""
        parser = LineParser()
        blocks = ahead(_lines(path), depth=1)
        try:
            for lines, cut in blocks:
                yield self._block(lines, cut, parser)
        finally:
            blocks.close()
            parser.close()

    def _block(self, lines: _text.Lines | None, cut: bytes, parser: LineParser) -> _Block:
        import numpy as np

        if cut:
            self.account.bad_line(cut)
            self.account.partial("the last line is cut short")
        times: NDArray[np.int64] = np.empty(0, np.int64)
        tables: Mapping[str, pa.Table] = {}
        if lines is not None:
            self._others(lines)
            records = parser.parse(lines)
            for line in records.bad_lines:
                self.account.bad_line(line)
            times, tables = records.times, records.tables
        self._follow(np.concatenate((times, np.array(self._heartbeats, np.int64))))
        self._heartbeats.clear()
        devices, self._devices = self._devices, []
        return _Block(tables, self.last_ns, tuple(devices))

    def _follow(self, timed: NDArray[np.int64]) -> None:
        """Move last_ns on. One absurd time must not: it would make everything behind it look late."""
        import numpy as np

        if timed.size:
            if self._first_ns is None:
                self._first_ns = int(timed.min())
            typical = timed[timed <= np.median(timed) + _ABSURD_NS]
            latest = np.maximum.accumulate(np.maximum(typical, self.last_ns))
            if (latest - typical).max() > _STEP_BACK_NS:
                self.account.partial("its times step back by more than 10 s: several recordings, or a clock that wraps")
            self.last_ns = int(latest[-1])

    def _others(self, lines: _text.Lines) -> None:
        """META, losses, banners, objects, and what is none of these."""
        import numpy as np

        records = np.flatnonzero(lines.record)
        if self._open and records.size:
            after = self._time_near(lines, records, 0, 1)
            if after is not None:
                for before, count in self._open:
                    self._add_loss(before, after, count)
                self._open.clear()
        pending: list[bytes] = []
        previous = -1
        for index in np.flatnonzero(~lines.record).tolist():
            line = lines.line(index)
            inside = pending and index == previous + 1 and len(pending) < 10_000 and not _LOST.match(line)
            previous = index
            if not (inside and line.strip()) or line.startswith(b"{"):
                self._bad(pending)
                inside = False
            if inside or line.startswith(b"{"):
                pending.append(line)
                if (lost_events := _object(pending)) is not None:
                    self._lose(lost_events, lines, records, index)
            elif lost := _LOST.match(line):
                self._lose(int(lost[1]), lines, records, index)
            elif end := _LIBBPF_END.match(line):
                if int(end[2]):
                    # A ring buffer that was full does not say when.
                    self.account.lost_events = (self.account.lost_events or 0) + int(end[2])
                    self._losses.append((-1, -1, int(end[2])))
            elif beat := _HEARTBEAT.match(line):
                self._heartbeats.append(int(beat[1]))
            elif seen := _QP_SEEN.match(line):
                self._queue_pair(seen)
            elif not (_OPEN_META.match(line) or _NOISE.match(line)):
                self.account.bad_line(line)
        self._bad(pending)
        before_ns = self._time_near(lines, records, records.size - 1, -1)
        self._before_ns = self._before_ns if before_ns is None else before_ns

    def _bad(self, pending: list[bytes]) -> None:
        for line in pending:
            self.account.bad_line(line)
        pending.clear()

    def _time_near(self, lines: _text.Lines, records: NDArray[np.int64], at: int, step: int) -> int | None:
        """Time of the record at position `at`, or of the next one in the direction of `step` that has one."""
        for position in range(at, records.size if step > 0 else -1, step):
            if found := _TIMED.match(lines.line(int(records[position]))):
                return int(found[2] or found[1])
        return None

    def _lose(self, count: int, lines: _text.Lines, records: NDArray[np.int64], index: int) -> None:
        import numpy as np

        self.account.lost_events = (self.account.lost_events or 0) + count
        position = int(np.searchsorted(records, index))
        before = self._time_near(lines, records, position - 1, -1)
        before = self._before_ns if before is None else before
        after = self._time_near(lines, records, position, 1)
        if after is None:
            self._open.append((before, count))
        else:
            self._add_loss(before, after, count)

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
