"""NVTX payloads of an export: binary structures, described by NVTX_PAYLOAD_SCHEMA_ENTRIES, with NCCL's figures.

Layout of NVTX_EVENTS.binaryData (little-endian), seen in exports of 2025 and 2026: domain id u32, reserved u32,
schema id u32, reserved u32, payload size u64, total size u64, then the payload. A NULL offset or value means 0.
Entries are found by name: schema ids differ between NCCL versions.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.sources import nsys_tables
from pipeline.sources.nsys_tables import Export

if TYPE_CHECKING:
    import pyarrow as pa

_HEADER = struct.Struct("<IIIIQQ")

# nvToolsExtPayload.h, NVTX_PAYLOAD_ENTRY_TYPE_*; char and string types are left out: nothing here needs them.
_FORMATS = {
    3: "<h",
    4: "<H",
    5: "<i",
    6: "<I",
    7: "<q",
    8: "<Q",
    9: "<q",
    10: "<Q",
    11: "<b",
    12: "<B",
    13: "<h",
    14: "<H",
    15: "<i",
    16: "<I",
    17: "<q",
    18: "<Q",
    19: "<f",
    20: "<d",
    22: "<Q",
    23: "<Q",
}
_ENUM_FORMAT = "<i"

COMMUNICATOR = "NCCL communicator ID"
_FIELDS = {
    "comm_id": (COMMUNICATOR,),
    "bytes": ("Message size [bytes]", "Message size", "Bytes"),
    "n_ranks": ("No. of ranks", "Number of ranks", "nranks"),
    "peer_rank": ("Peer rank", "Peer"),
}


@dataclass(frozen=True)
class _Entry:
    name: str
    offset: int
    format: str
    labels: dict[int, str] | None


class PayloadDecoder:
    """Decodes the payloads of one export. Each distinct payload is decoded once a batch."""

    def __init__(self, export: Export) -> None:
        labels: dict[tuple[int, int], dict[int, str]] = {}
        for row in nsys_tables.records(export, nsys_tables.ENUM_ENTRIES):
            if row["name"] is not None:
                key = (row["domainId"] or 0, row["schemaId"] or 0)
                labels.setdefault(key, {})[row["value"] or 0] = row["name"]
        self._schemas: dict[tuple[int, int], dict[int, _Entry]] = {}
        for row in nsys_tables.records(export, nsys_tables.SCHEMA_ENTRIES):
            domain, kind = row["domainId"] or 0, row["type"] or 0
            values = labels.get((domain, kind))
            format_ = _FORMATS.get(kind) or (_ENUM_FORMAT if kind > 0xFFFF else None)
            if format_ is not None and row["name"]:
                schema = self._schemas.setdefault((domain, row["schemaId"] or 0), {})
                schema[row["idx"] or 0] = _Entry(row["name"], row["offset"] or 0, format_, values)

    def decode(self, blob: bytes) -> dict[str, int | float | str]:
        """Entry name → value (an enumeration's label where it has one); {} where the payload is not understood."""
        if len(blob) < _HEADER.size:
            return {}
        domain, _, schema, _, size, total = _HEADER.unpack_from(blob)
        entries = self._schemas.get((domain, schema))
        if entries is None or total != len(blob) or size != total - _HEADER.size:
            return {}
        found: dict[str, int | float | str] = {}
        for _, entry in sorted(entries.items()):
            start = _HEADER.size + entry.offset
            if start + struct.calcsize(entry.format) <= len(blob):
                (value,) = struct.unpack_from(entry.format, blob, start)
                found[entry.name] = entry.labels.get(value, value) if entry.labels else value
        return found

    def columns(self, blobs: pa.Array) -> dict[str, pa.Array]:
        """Columns payload (JSON), comm_id, bytes, n_ranks, peer_rank of a batch's payloads."""
        import pyarrow as pa

        types = {
            "payload": pa.string(),
            "comm_id": pa.string(),
            "bytes": pa.int64(),
            "n_ranks": pa.int64(),
            "peer_rank": pa.int64(),
        }
        if blobs.null_count == len(blobs):
            return {name: pa.nulls(len(blobs), kind) for name, kind in types.items()}
        coded = blobs.dictionary_encode()
        decoded = [self.decode(blob) if blob else {} for blob in coded.dictionary.to_pylist()]
        columns: dict[str, list[Any]] = {"payload": [json.dumps(d, ensure_ascii=False) if d else None for d in decoded]}
        for name, entries in _FIELDS.items():
            columns[name] = [next((d[e] for e in entries if e in d), None) for d in decoded]
        columns["comm_id"] = [None if v is None else str(v) for v in columns["comm_id"]]
        for name in ("bytes", "n_ranks", "peer_rank"):
            columns[name] = [v if isinstance(v, int) and v < 2**63 else None for v in columns[name]]
        return {name: pa.array(columns[name], kind).take(coded.indices) for name, kind in types.items()}
