"""One step of a run as a timeline: a Perfetto trace (protobuf), or the older Chrome JSON that other viewers read.

Tracks of a rank: categories of attribution, GPU streams, CUDA calls and NVTX ranges of its threads, states and posts of
its proxy threads, completions and messages in flight of its NICs. Flows lead from a launch to its kernels and from a
post to its completion. Times are those of the run clock.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from pipeline.lake.catalog import find_run
from pipeline.lake.layout import run_of
from pipeline.model import library
from pipeline.model.errors import UsageError
from pipeline.reports.data import Scope
from pipeline.reports.load import check, opened, plain
from pipeline.reports.words import label_of

if TYPE_CHECKING:
    import duckdb

FORMATS = ("perfetto", "chrome")

_KINDS = ("category", "gpu", "api", "nvtx", "state", "post", "completion")
"""Order of the tracks below a rank."""
_CHUNK = 20_000
_SEQUENCE = 1
_STARTED, _NEEDS_STATE = 1, 2  # TracePacket.SequenceFlags
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4  # TrackEvent.Type
_EXPLICIT = 3  # TrackDescriptor.ChildTracksOrdering


@dataclass(frozen=True)
class Exported:
    """What was written."""

    ranks: int
    slices: int
    flows: int


@dataclass(frozen=True)
class _Rank:
    rank: int
    title: str
    start_ns: int


@dataclass(frozen=True)
class _Slice:
    rank: int
    kind: str
    track: str
    name: str
    start_ns: int
    end_ns: int
    flow_id: int | None
    flow_end: bool
    details: dict[str, str]
    numbers: dict[str, int]


def export(
    lake: Path, run: str | None, step: int, format: str, output: Path, *, ranks: Sequence[int] | None = None
) -> Exported:
    """Write step `step` of a run (None: the newest) as `format` to `output`, whole or not at all.

    ranks: those to show; None: all. Raises NoSuchRun, UsageError for an unknown format, step or rank.
    """
    if format not in FORMATS:
        raise UsageError(f"no format {format!r}", todo=f"choose one of {', '.join(FORMATS)}")
    run_dir = find_run(lake, run)
    with opened(run_dir, Scope(None, step)) as connection:
        check(connection, Scope(None, step), run_dir)
        for rank in ranks or ():
            check(connection, Scope(rank, None), run_dir)
        connection.execute("CREATE TEMP TABLE export_ranks (rank BIGINT)")
        if ranks:
            connection.executemany("INSERT INTO export_ranks VALUES (?)", [[rank] for rank in ranks])
        for name in ("export_window", "export_slices", "export_in_flight"):
            connection.execute(library.sql(name))
        with _whole(output) as stream:
            write = _Perfetto(stream) if format == "perfetto" else _Chrome(stream)
            return _write(connection, write, run_of(run_dir.path), step)


def _write(connection: duckdb.DuckDBPyConnection, out: _Perfetto | _Chrome, run: str, step: int) -> Exported:
    ranks = _ranks(connection)
    if not ranks:
        raise UsageError(f"none of the chosen ranks of run {run} has step {step}", todo="choose another step or rank")
    out.begin(run, step, ranks)
    slices = flows = 0
    for each in _slices(connection):
        out.slice(each)
        slices += 1
        flows += each.flow_id is not None and each.flow_end
    for rank, track, at_ns, messages, n_bytes in _chunks(
        connection, "FROM export_in_flight ORDER BY rank, track, at_ns"
    ):
        out.counter(rank, track, at_ns, int(messages), int(n_bytes))
    out.finish()
    return Exported(len(ranks), slices, flows)


def _ranks(connection: duckdb.DuckDBPyConnection) -> list[_Rank]:
    rows = connection.execute("SELECT rank, node, gpu, start_ns FROM export_window ORDER BY rank").fetchall()
    return [
        _Rank(rank, ", ".join([f"rank {rank}", *(x for x in (node, gpu) if x)]), start_ns)
        for rank, node, gpu, start_ns in rows
    ]


def _slices(connection: duckdb.DuckDBPyConnection) -> Iterator[_Slice]:
    query = "FROM export_slices ORDER BY rank, list_position($1, kind), track, start_ns, end_ns DESC, name"
    for rank, kind, track, name, start_ns, end_ns, flow_id, flow_end, details, numbers in _chunks(
        connection, query, [list(_KINDS)]
    ):
        yield _Slice(
            rank=rank,
            kind=kind,
            track=track,
            name=plain(name or kind),
            start_ns=start_ns,
            end_ns=end_ns,
            flow_id=flow_id,
            flow_end=flow_end,
            details={key: plain(value) for key, value in details.items() if value},
            numbers={key: int(value) for key, value in numbers.items() if value is not None},
        )


def _chunks(
    connection: duckdb.DuckDBPyConnection, query: str, values: list[Any] | None = None
) -> Iterator[tuple[Any, ...]]:
    cursor = connection.execute(query, values or [])
    while rows := cursor.fetchmany(_CHUNK):
        yield from rows


@contextmanager
def _whole(output: Path) -> Iterator[IO[bytes]]:
    """A stream that becomes `output` when it is complete."""
    partial = output.with_name(f".{output.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            yield stream
        partial.replace(output)
    except OSError as error:
        raise UsageError(f"can't write it: {error.strerror}", where=output) from None
    finally:
        partial.unlink(missing_ok=True)


class _Perfetto:
    """Packets of one sequence; names are interned, so a kernel's name is written once."""

    def __init__(self, stream: IO[bytes]) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

        self._new = Trace
        self._trace = Trace()
        self._stream = stream
        self._names: dict[str, int] = {}
        self._tracks: dict[tuple[int, str], int] = {}
        self._started = False

    def begin(self, run: str, step: int, ranks: Iterable[_Rank]) -> None:
        for rank in ranks:
            packet = self._packet()
            track = packet.track_descriptor
            track.uuid = _process_uuid(rank.rank)
            track.process.pid = rank.rank + 1  # pid 0 means the idle process to viewers
            track.process.process_name = f"{rank.title}, step {step}"
            track.description = f"run {run}"
            track.child_ordering = _EXPLICIT

    def slice(self, s: _Slice) -> None:
        track = self._track(s.rank, s.track, _KINDS.index(s.kind))
        packet = self._packet()
        packet.timestamp = s.start_ns
        event = packet.track_event
        event.track_uuid = track
        event.type = _INSTANT if s.kind == "completion" else _BEGIN
        event.name_iid = self._name(packet, label_of(s.name) if s.kind == "category" else s.name)
        event.categories.append(s.name if s.kind == "category" else s.kind)
        for key, text in s.details.items():
            note = event.debug_annotations.add()
            note.name, note.string_value = key, text
        for key, number in s.numbers.items():
            note = event.debug_annotations.add()
            note.name, note.int_value = key, number
        if s.flow_id is not None:
            (event.terminating_flow_ids if s.flow_end and s.kind == "completion" else event.flow_ids).append(s.flow_id)
        if s.kind != "completion":
            end = self._packet()
            end.timestamp = s.end_ns
            end.track_event.track_uuid = track
            end.track_event.type = _END

    def counter(self, rank: int, track: str, at_ns: int, messages: int, n_bytes: int) -> None:
        for name, unit, value in ((f"{track}, messages", "messages", messages), (f"{track}, bytes", "bytes", n_bytes)):
            uuid = self._track(rank, name, len(_KINDS), unit=unit)
            packet = self._packet()
            packet.timestamp = at_ns
            packet.track_event.track_uuid = uuid
            packet.track_event.type = _COUNTER
            packet.track_event.counter_value = value

    def finish(self) -> None:
        self._flush()

    def _track(self, rank: int, name: str, order: int, *, unit: str | None = None) -> int:
        key = (rank, name)
        if key not in self._tracks:
            uuid = _process_uuid(rank) + 1 + len(self._tracks)
            packet = self._packet()
            packet.track_descriptor.uuid = uuid
            packet.track_descriptor.parent_uuid = _process_uuid(rank)
            packet.track_descriptor.name = name
            packet.track_descriptor.sibling_order_rank = order
            if unit is not None:
                packet.track_descriptor.counter.unit_name = unit
            self._tracks[key] = uuid
        return self._tracks[key]

    def _name(self, packet: Any, name: str) -> int:
        iid = self._names.get(name)
        if iid is None:
            iid = self._names[name] = len(self._names) + 1
            entry = packet.interned_data.event_names.add()
            entry.iid, entry.name = iid, name
        return iid

    def _packet(self) -> Any:
        if len(self._trace.packet) >= _CHUNK:
            self._flush()
        packet = self._trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        packet.sequence_flags = _NEEDS_STATE if self._started else _STARTED | _NEEDS_STATE
        self._started = True
        return packet

    def _flush(self) -> None:
        # A trace is a sequence of packets, so serialised pieces of one concatenate to the whole.
        self._stream.write(self._trace.SerializeToString())
        self._trace = self._new()


def _process_uuid(rank: int) -> int:
    return (rank + 1) << 32


class _Chrome:
    """Events of the Trace Event Format, one a line. Times are µs from the first rank's step start, with ns decimals."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._threads: dict[tuple[int, str], int] = {}
        self._base_ns = 0
        self._lead = ""

    def begin(self, run: str, step: int, ranks: Iterable[_Rank]) -> None:
        ranks = list(ranks)
        self._base_ns = min(rank.start_ns for rank in ranks)
        about = {"run": run, "step": step, "start_unix_ns": str(self._base_ns)}
        self._stream.write(f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n'.encode())
        for rank in ranks:
            self._event(ph="M", name="process_name", pid=rank.rank, args={"name": f"{rank.title}, step {step}"})
            self._event(ph="M", name="process_sort_index", pid=rank.rank, args={"sort_index": rank.rank})

    def slice(self, s: _Slice) -> None:
        tid = self._thread(s.rank, s.track, _KINDS.index(s.kind))
        name = label_of(s.name) if s.kind == "category" else s.name
        category = s.name if s.kind == "category" else s.kind
        common = {"name": name, "cat": category, "pid": s.rank, "tid": tid, "ts": self._us(s.start_ns)}
        args = {**s.details, **s.numbers}
        if s.kind == "completion":
            self._event(ph="i", s="t", args=args, **common)
        else:
            self._event(ph="X", dur=(s.end_ns - s.start_ns) / 1000, args=args, **common)
        if s.flow_id is not None:
            flow = {
                **common,
                "name": "message" if s.kind in ("post", "completion") else "launch",
                "cat": "flow",
                "id": hex(s.flow_id),
            }
            self._event(**({**flow, "ph": "f", "bp": "e"} if s.flow_end else {**flow, "ph": "s"}))

    def counter(self, rank: int, track: str, at_ns: int, messages: int, n_bytes: int) -> None:
        for name, value in ((f"{track}, messages", messages), (f"{track}, bytes", n_bytes)):
            self._event(ph="C", name=name, pid=rank, ts=self._us(at_ns), args={"value": value})

    def finish(self) -> None:
        self._stream.write(b"\n]}\n")

    def _thread(self, rank: int, track: str, order: int) -> int:
        key = (rank, track)
        if key not in self._threads:
            tid = self._threads[key] = len(self._threads) + 1
            self._event(ph="M", name="thread_name", pid=rank, tid=tid, args={"name": track})
            self._event(ph="M", name="thread_sort_index", pid=rank, tid=tid, args={"sort_index": order * 1000 + tid})
        return self._threads[key]

    def _us(self, ns: int) -> float:
        return (ns - self._base_ns) / 1000

    def _event(self, **event: Any) -> None:
        self._stream.write((self._lead + json.dumps(event, ensure_ascii=False)).encode())
        self._lead = ",\n"
