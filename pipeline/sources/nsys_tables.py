"""The tables of an Nsight Systems export that are read, and a reader's view of an export.

Exports differ by version: tables are absent, suffixed `_V2`, columns come and go, types are narrower in
Parquet than in SQLite. A reader (`Export`) hides that: each `Raw` table has one fixed schema, what the file
lacks is NULL, ids are int64 (two's complement where the file has unsigned ones), text is valid UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Raw:
    """A table of an export as the SQL library sees it, under the name `name`.

    table: Nsight Systems' name. ints, reals, texts, blobs: columns by type, all nullable. required: without
    these the table can't be used and counts as absent.
    """

    name: str
    table: str
    ints: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    blobs: tuple[str, ...] = ()
    required: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        return self.ints + self.texts + self.blobs

    def schema(self) -> pa.Schema:
        """Arrow schema of the batches that readers yield."""
        import pyarrow as pa

        return pa.schema(
            [pa.field(c, pa.int64()) for c in self.ints]
            + [pa.field(c, pa.string()) for c in self.texts]
            + [pa.field(c, pa.binary()) for c in self.blobs]
        )


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_GPU = "start end deviceId contextId streamId correlationId globalPid graphNodeId"

KERNEL = Raw(
    "nsys_raw_kernel",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    _words(f"{_GPU} graphId demangledName shortName"),
    required=("start", "end"),
)
MEMCPY = Raw(
    "nsys_raw_memcpy",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    _words(f"{_GPU} bytes copyKind"),
    required=("start", "end"),
)
MEMSET = Raw("nsys_raw_memset", "CUPTI_ACTIVITY_KIND_MEMSET", _words(f"{_GPU} bytes"), required=("start", "end"))
GRAPH = Raw(
    "nsys_raw_graph",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    _words("start end deviceId contextId streamId correlationId globalPid graphId graphExecId"),
    required=("start", "end"),
)
RUNTIME = Raw(
    "nsys_raw_runtime",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    _words("start end globalTid correlationId nameId"),
    required=("start", "end", "globalTid"),
)
NVTX = Raw(
    "nsys_raw_nvtx",
    "NVTX_EVENTS",
    _words("start end eventType globalTid textId domainId jsonTextId"),
    ("text", "jsonText"),
    ("binaryData",),
    required=("start", "eventType"),
)
OSRT = Raw(
    "nsys_raw_osrt",
    "OSRT_API",
    _words("start end globalTid nameId"),
    required=("start", "end", "globalTid"),
)
SCHED = Raw(
    "nsys_raw_sched",
    "SCHED_EVENTS",
    _words("start cpu isSchedIn globalTid threadState"),
    required=("start", "isSchedIn", "globalTid"),
)
GPU_METRICS = Raw(
    "nsys_raw_gpu_metrics",
    "GPU_METRICS",
    _words("timestamp typeId metricId value"),
    required=("timestamp", "metricId", "value"),
)
NIC_METRICS = Raw(
    "nsys_raw_nic_metric",
    "NET_NIC_METRIC",
    _words("start end globalId metricsListId metricsIdx value"),
    required=("start", "value", "metricsIdx"),
)
SWITCH_METRICS = Raw(
    "nsys_raw_switch_metric",
    "NET_IB_SWITCH_METRIC",
    _words("start end globalId metricsListId metricsIdx value"),
    required=("start", "value", "metricsIdx"),
)

EVENTS: tuple[Raw, ...] = (
    KERNEL,
    MEMCPY,
    MEMSET,
    GRAPH,
    RUNTIME,
    NVTX,
    OSRT,
    SCHED,
    GPU_METRICS,
    NIC_METRICS,
    SWITCH_METRICS,
)
"""Tables of events: as long as the capture was; read as streams, once."""

STRINGS = Raw("nsys_raw_strings", "StringIds", ("id",), ("value",), required=("id", "value"))
THREADS = Raw("nsys_raw_thread_names", "ThreadNames", _words("nameId priority globalTid"))
PROCESSES = Raw("nsys_raw_processes", "PROCESSES", _words("globalPid pid"), ("name",))
DIAGNOSTICS = Raw(
    "nsys_raw_diagnostics",
    "DIAGNOSTIC_EVENT",
    _words("timestamp timestampType source severity globalPid"),
    ("text",),
)
COPY_KINDS = Raw("nsys_raw_copy_kinds", "ENUM_CUDA_MEMCPY_OPER", ("id",), ("label",))
SCHED_STATES = Raw("nsys_raw_sched_states", "ENUM_SAMPLING_THREAD_STATE", ("id",), ("label",))
LINK_TYPES = Raw("nsys_raw_link_types", "ENUM_NET_LINK_TYPE", ("id",), ("label",))
GPU_METRIC_NAMES = Raw(
    "nsys_raw_gpu_metric_names", "TARGET_INFO_GPU_METRICS", _words("typeId metricId"), ("metricName",)
)
NET_METRIC_NAMES = Raw(
    "nsys_raw_net_metric_names", "TARGET_INFO_NETWORK_METRICS", _words("metricsListId metricsIdx"), ("name",)
)
NICS = Raw("nsys_raw_nics", "TARGET_INFO_NIC_INFO", _words("GUID nicId linkLayer"), ("name",))
NIC_IDS = Raw("nsys_raw_nic_ids", "NIC_ID_MAP", _words("nicId globalId"))

LOOKUPS: tuple[Raw, ...] = (
    STRINGS,
    THREADS,
    PROCESSES,
    DIAGNOSTICS,
    COPY_KINDS,
    SCHED_STATES,
    LINK_TYPES,
    GPU_METRIC_NAMES,
    NET_METRIC_NAMES,
    NICS,
    NIC_IDS,
)
"""Tables that events refer to; loaded whole."""

SESSION = Raw("session", "TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",))
DETAILS = Raw("details", "ANALYSIS_DETAILS", _words("duration startTime stopTime"))
GPUS = Raw("gpus", "TARGET_INFO_GPU", _words("id cuDevice"), _words("name uuid busLocation"))
DEVICES = Raw("devices", "TARGET_INFO_CUDA_DEVICE", _words("gpuId cudaId pid"))
CONTEXTS = Raw("contexts", "TARGET_INFO_CUDA_CONTEXT_INFO", _words("processId deviceId contextId"))
SYSTEM = Raw("system", "TARGET_INFO_SYSTEM_ENV", ("nameEnum",), _words("name"), ("value",))
CAPTURE = Raw("capture", "META_DATA_CAPTURE", (), ("name",), ("value",))
EXPORT = Raw("export", "META_DATA_EXPORT", (), _words("name value"))
EXPORT_OLD = Raw("export_old", "EXPORT_META_DATA", (), _words("name value"))
SCHEMA_ENTRIES = Raw(
    "schema_entries",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
    _words("domainId schemaId idx type offset"),
    ("name",),
)
ENUM_ENTRIES = Raw("enum_entries", "NVTX_PAYLOAD_ENUM_ENTRIES", _words("domainId schemaId value"), ("name",))


@dataclass(frozen=True)
class Physical:
    """A table as it lies in the file. rows: exact or a close estimate."""

    name: str
    columns: frozenset[str]
    rows: int


@dataclass
class Problems:
    """What a reader had to mend, by kind; becomes log_events."""

    mistyped: dict[str, int] = field(default_factory=dict)
    """Column → values of another type than the column's, read as NULL."""


class Export(Protocol):
    """An opened export. Not thread-safe; close it."""

    path: Path
    size_bytes: int
    problems: Problems

    def tables(self) -> Mapping[str, Physical]:
        """Tables by physical name."""
        ...

    def batches(self, raw: Raw, physical: Physical) -> Iterator[pa.RecordBatch]:
        """The rows of a table in `raw`'s schema."""
        ...

    def sample(self, physical: Physical, columns: Sequence[str]) -> set[tuple[int | None, ...]]:
        """Distinct values of integer columns, over rows spread through the table (all of a small one)."""
        ...

    def environment_blocks(self, physical: Physical) -> list[bytes]:
        """Values of StringIds that hold NUL-separated environment blocks."""
        ...

    def close(self) -> None: ...


_SUFFIX = re.compile(r"_V(\d+)$", re.IGNORECASE)


def resolve(tables: Mapping[str, Physical], raw: Raw) -> Physical | None:
    """The physical table for `raw`: its name, or its name with a `_V<n>` suffix; None where it is absent.

    Of several, the highest version that has rows; a table without the required columns counts as absent.
    """
    found: list[tuple[bool, int, Physical]] = []
    for name, physical in tables.items():
        suffix = _SUFFIX.search(name)
        base = name[: suffix.start()] if suffix else name
        if base.lower() == raw.table.lower() and physical.columns.issuperset(raw.required):
            found.append((physical.rows > 0, int(suffix[1]) if suffix else 1, physical))
    return max(found, key=lambda f: f[:2])[2] if found else None


def records(export: Export, raw: Raw) -> list[dict[str, Any]]:
    """All rows of a small table, as dictionaries; [] where it is absent."""
    physical = resolve(export.tables(), raw)
    if physical is None:
        return []
    return [row for batch in export.batches(raw, physical) for row in batch.to_pylist()]
