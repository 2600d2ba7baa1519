"""PyTorch flight-recorder dumps: the last collectives of one rank, as pickle or JSON.

Pickles are untrusted: only plain containers, text and numbers are ever built from them.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.model.capture import Account, Capture, Clock, Process
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources._plain import batches, int64, number_in_name

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "flight_recorder"
MAX_BYTES = 256 << 20

_OPERATIONS = {
    "all_reduce": "AllReduce",
    "allreduce": "AllReduce",
    "allreduce_coalesced": "AllReduce",
    "all_gather": "AllGather",
    "_all_gather_base": "AllGather",
    "all_gather_into_tensor_coalesced": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "_reduce_scatter_base": "ReduceScatter",
    "reduce_scatter_tensor_coalesced": "ReduceScatter",
    "all_to_all": "AllToAll",
    "all_to_allv": "AllToAll",
    "broadcast": "Broadcast",
    "_broadcast_oop": "Broadcast",
    "reduce": "Reduce",
    "_reduce_oop": "Reduce",
    "gather": "Gather",
    "scatter": "Scatter",
    "all_reduce_barrier": "AllReduce",
    "barrier": "AllReduce",
    "coalesced": "SendRecv",
}
_BITS = {
    "float": 32,
    "float32": 32,
    "double": 64,
    "float64": 64,
    "half": 16,
    "float16": 16,
    "bfloat16": 16,
    "long": 64,
    "int64": 64,
    "int": 32,
    "int32": 32,
    "short": 16,
    "int16": 16,
    "char": 8,
    "int8": 8,
    "byte": 8,
    "uint8": 8,
    "bool": 8,
    "float8_e4m3fn": 8,
    "float8_e5m2": 8,
    "complexfloat": 64,
    "complexdouble": 128,
}
_P2P = re.compile(r"^(send|recv) (\d+)(?:->|<-)(\d+)$")


class _Plain(pickle.Unpickler):
    """Builds dict, list, tuple, set, text, bytes and numbers; anything that names a class or a function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, and a dump holds plain values only")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it holds persistent references, and a dump holds plain values only")


def claims(path: Path) -> bool:
    """A pickle or JSON object with the recorder's keys near its start."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(64 << 10)
    is_pickle = head[:1] == b"\x80" and head[1:2] <= b"\x05"
    is_json = head.lstrip()[:1] == b"{"
    return (is_pickle or is_json) and b"pg_config" in head and (b"nccl_version" in head or b"entries" in head)


def inspect(path: Path, config: RunConfig) -> Capture:
    """Rank and versions. Raises UnusableInput for what is no dump."""
    dump = _load(path)
    rank = _rank(dump, path)
    return Capture(
        path=path,
        kind=KIND,
        tool="PyTorch flight recorder",
        tool_version=str(dump.get("version")) if dump.get("version") is not None else None,
        host=dump["host"] if isinstance(dump.get("host"), str) else None,
        clock=Clock.REALTIME,
        processes=() if rank is None else (Process(key=rank, pid=None, env={"RANK": str(rank)}),),
        present=("comm_ops",) if dump["entries"] else (),
        missing=() if dump["entries"] else ("entries",),
        notes=() if rank is not None else ("neither the dump nor its name gives a rank",),
        bytes=path.stat().st_size,
    )


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Operations of the ring. Older ones have fallen off it, so sequence numbers start anywhere.

    start_ns and end_ns are when the watchdog saw it start and end; NULL where it did not.
    """
    dump = _load(capture.path)
    own = _rank(dump, capture.path)
    rank = ranks.get(own, own) if own is not None else None
    groups = _groups(dump)
    rows = []
    open_entries = []
    for entry in dump["entries"]:
        row = _row(entry, groups) if isinstance(entry, dict) else None
        if row is None:
            account.bad_line(repr(entry)[:1000].encode())
            continue
        rows.append({"rank": rank, "source": KIND, **row})
        if entry.get("state") != "completed":
            open_entries.append(row)
    yield from batches("comm_ops", rows)
    if open_entries:
        first = open_entries[0]
        text = (
            f"{len(open_entries)} of {len(rows)} recorded operations had not completed; the first is {first['op']} "
            f"number {first['seq']} of communicator {first['comm_id']}"
        )
        event = {"node": node, "rank": rank, "source": KIND, "code": "operation_not_completed", "severity": "warning"}
        yield from batches("log_events", [{**event, "text": text}])
    if account.bad_line_count:
        account.partial(f"{account.bad_line_count} entries could not be read")


def _load(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_BYTES:
        raise UnusableInput(f"a dump of more than {MAX_BYTES >> 20} MB", where=path)
    data = path.read_bytes()
    try:
        dump = _Plain(io.BytesIO(data)).load() if data[:1] == b"\x80" else json.loads(data)
    except (ValueError, EOFError, pickle.UnpicklingError, RecursionError, MemoryError, KeyError, IndexError) as error:
        raise UnusableInput(f"not a flight-recorder dump: {error}", where=path) from None
    except (AttributeError, TypeError, OverflowError) as error:
        raise UnusableInput(f"not a flight-recorder dump: {type(error).__name__}", where=path) from None
    if not isinstance(dump, dict) or not isinstance(dump.get("entries", []), list):
        raise UnusableInput("not a flight-recorder dump: no entries", where=path)
    return {**dump, "entries": dump.get("entries", [])}


def _rank(dump: Mapping[str, Any], path: Path) -> int | None:
    said = dump.get("rank")
    if isinstance(said, str) and said.isdecimal() and len(said) < 10:
        said = int(said)
    return int64(said) if int64(said) is not None else number_in_name(path)


def _groups(dump: Mapping[str, Any]) -> dict[str, list[int]]:
    """Ranks of each process group by its name."""
    groups = {}
    config = dump.get("pg_config")
    for name, group in (config if isinstance(config, dict) else {}).items():
        said = group.get("ranks") if isinstance(group, dict) else None
        if isinstance(said, str):
            said = [int(number) for number in re.findall(r"\d{1,9}", said)]
        if isinstance(said, list) and all(int64(number) is not None for number in said):
            groups[str(name)] = said
    return groups


def _row(entry: Mapping[str, Any], groups: Mapping[str, list[int]]) -> dict[str, Any] | None:
    name = entry.get("profiling_name")
    if not isinstance(name, str):
        return None
    operation = name.partition(":")[2] or name
    group = entry.get("process_group")
    comm = group[0] if isinstance(group, list | tuple) and group else entry.get("pg_id")
    ranks = groups.get(str(comm))
    p2p = _P2P.match(operation)
    peer = None
    if p2p:
        member = int(p2p[3])
        peer = ranks[member] if ranks and member < len(ranks) else None
    seq = entry.get("p2p_seq_id") if entry.get("is_p2p") or p2p else entry.get("collective_seq_id")
    return {
        "comm_id": None if comm is None else str(comm),
        "seq": int64(seq if seq is not None else entry.get("seq_id")),
        "op": p2p[1].capitalize() if p2p else _OPERATIONS.get(operation, operation or "unknown"),
        "bytes": _bytes(entry.get("input_sizes"), entry.get("input_dtypes")),
        "n_ranks": len(ranks) if ranks else None,
        "start_ns": int64(entry.get("time_discovered_started_ns")),
        "end_ns": int64(entry.get("time_discovered_completed_ns")),
        "peer_rank": peer,
    }


def _bytes(sizes: Any, types: Any) -> int | None:
    """Bytes of all input tensors; NULL where a size or a type is not known."""
    if not isinstance(sizes, list) or not sizes:
        return None
    kinds = types if isinstance(types, list) else []
    total = 0
    for index, size in enumerate(sizes):
        bits = _BITS.get(str(kinds[min(index, len(kinds) - 1)]).lower()) if kinds else None
        if bits is None or not isinstance(size, list) or not all(int64(n) is not None for n in size):
            return None
        total += math.prod(size) * bits // 8
    return int64(total)
