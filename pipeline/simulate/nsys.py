"""Writes Nsight Systems SQLite exports (2025.3.2) of a played run: real tables, real packing, one file a rank or a node."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.simulate.clocks import EPOCH_NS, VM_ID, NodeClock, global_pid, pid, proxy_tid, worker_tid
from pipeline.simulate.cluster import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, Played

GPU_NAME = "NVIDIA H100 80GB HBM3"
_VERSION = "2025.3.2.0"
_ENUMS: dict[str, tuple[tuple[int, str, str], ...]] = {
    "ENUM_NSYS_EVENT_TYPE": (
        (34, "NvtxMark", "NvtxMark"),
        (59, "NvtxPushPopRange", "NvtxPushPopRange"),
        (60, "NvtxStartEndRange", "NvtxStartEndRange"),
        (75, "NvtxDomainCreate", "NvtxDomainCreate"),
    ),
    "ENUM_NSYS_EVENT_CLASS": (
        (0, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
        (1, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
        (27, "TRACE_PROCESS_EVENT_OS_RUNTIME", "OSRT runtime"),
    ),
    "ENUM_CUDA_MEMCPY_OPER": (
        (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
        (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"),
        (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"),
    ),
    "ENUM_CUDA_MEM_KIND": (
        (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"),
        (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
        (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"),
    ),
    "ENUM_CUDA_KERNEL_LAUNCH_TYPE": ((1, "CUDA_KERNEL_LAUNCH_TYPE_REGULAR", "Regular"),),
    "ENUM_CUPTI_SYNC_TYPE": (
        (2, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", "Stream sync"),
        (3, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT", "Stream wait sync"),
    ),
    "ENUM_CUPTI_STREAM_TYPE": (
        (2, "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NON_BLOCKING", "Non-blocking stream"),
        (3, "CUPTI_ACTIVITY_STREAM_CREATE_FLAG_NULL", "Null stream"),
    ),
}


def write_node(played: Played, clock: NodeClock, node: int, folder: Path) -> list[Path]:
    """The node's exports, into `folder`; one a rank or one for all its processes, as the scenario says."""
    ranks = range(node * played.gpus_per_node, (node + 1) * played.gpus_per_node)
    if played.scenario.one_file_per == "rank":
        return [_write(played, clock, (rank,), folder / f"rank{rank}.sqlite") for rank in ranks]
    return [_write(played, clock, tuple(ranks), folder / "report.sqlite")]


_SCHEMAS = {
    "ncclAlltoAll": (16_777_232, False),
    "ncclAllReduce": (16_777_221, True),
    "ncclReduceScatter": (16_777_226, True),
}
"""Schema of each call's payload, and whether it names a reduction (NCCL 2.28)."""
_REDUCTIONS = 16_777_236


class _Strings:
    """StringIds."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def __getitem__(self, text: str) -> int:
        return self._ids.setdefault(text, len(self._ids) + 1)

    def of(self, texts: Any) -> list[int]:
        """Ids of an array of strings; only its distinct values are looked at one by one."""
        distinct, which = np.unique(np.asarray(texts), return_inverse=True)
        ids: list[int] = np.array([self[str(text)] for text in distinct], np.int64)[which].tolist()
        return ids

    def rows(self) -> Iterable[tuple[int, str]]:
        return ((number, text) for text, number in self._ids.items())


def _write(played: Played, clock: NodeClock, ranks: Sequence[int], path: Path) -> Path:
    path.unlink(missing_ok=True)
    database = sqlite3.connect(path, isolation_level=None)
    try:
        database.execute("PRAGMA page_size = 1024")  # mostly small tables: an empty one takes a page
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("BEGIN")
        ddl = (files("pipeline.simulate") / "nsys_2025_3_2.sql").read_text(encoding="utf-8")
        for statement in ddl.split(";\n"):
            if "CREATE" in statement:
                database.execute(statement)
        _Export(played, clock, ranks, database, path).write()
        database.execute("COMMIT")
    finally:
        database.close()
    return path


class _Export:
    def __init__(
        self, played: Played, clock: NodeClock, ranks: Sequence[int], database: sqlite3.Connection, path: Path
    ) -> None:
        self.p, self.clock, self.ranks, self.db, self.path = played, clock, ranks, database, path
        self.strings = _Strings()
        self.first = ranks[0] - ranks[0] % played.gpus_per_node

    def insert(self, table: str, names: str, columns: Sequence[Any]) -> None:
        """Rows given as columns; scalars repeat."""
        length = max(len(c) for c in columns if not np.isscalar(c) and c is not None)
        plain = [
            [c] * length if c is None or np.isscalar(c) else (c.tolist() if isinstance(c, np.ndarray) else list(c))
            for c in columns
        ]
        marks = ", ".join("?" * len(columns))
        self.db.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", zip(*plain, strict=True))

    def mine(self, columns: Any, names: Sequence[str], by: str = "start") -> list[Any]:
        """Columns of these ranks, ordered by time."""
        rank = columns["rank"]
        keep = np.flatnonzero(np.isin(rank, self.ranks))
        order = keep[np.lexsort((rank[keep], columns[by][keep]))]
        return [columns[name][order] for name in names]

    def tid(self, rank: Any) -> Any:
        return np.int64(VM_ID << 48) | self.pid(rank) << 24 | self.pid(rank)

    def gpid(self, rank: Any) -> Any:
        return np.int64(VM_ID << 48) | self.pid(rank) << 24

    def pid(self, rank: Any) -> Any:
        return np.asarray(pid(0) + (pid(1) - pid(0)) * ((rank - self.first) % self.p.gpus_per_node), np.int64)

    def write(self) -> None:
        self.gpu()
        self.calls()
        self.ranges()
        self.target()
        self.insert("StringIds", "id, value", list(zip(*self.strings.rows(), strict=True)))

    def gpu(self) -> None:
        names = ("rank", "start", "end", "stream", "name", "what", "bytes", "correlation")
        columns = self.mine(self.p.gpu, names)
        kernels = columns[5] != "copy"
        rank, start, end, stream, name, _, _, correlation = (c[kernels] for c in columns)
        device = (rank - self.first) % self.p.gpus_per_node
        short = np.array([_short(text) for text in name])
        full = self.strings.of(name)
        self.insert(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid, demangledName, "
            "shortName, mangledName, launchType, cacheConfig, registersPerThread, gridX, gridY, gridZ, blockX, blockY, "
            "blockZ, staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId, "
            "sharedMemoryExecuted, graphNodeId, sharedMemoryLimitConfig",
            [
                self.clock.session(start), self.clock.session(end), device, 1, 0, stream, correlation, self.gpid(rank),
                full, self.strings.of(short), full, 1, 1, 96, 132, 1, 1, 384, 1, 1, 0, 0, 0, 0,
                np.arange(1, start.size + 1), 0, None, 0,
            ],
        )  # fmt: skip
        rank, start, end, stream, name, _, size, correlation = (c[~kernels] for c in columns)
        to_device = name == "HtoD"
        self.insert(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            "start, end, deviceId, contextId, greenContextId, streamId, correlationId, globalPid, bytes, copyKind, "
            "srcKind, dstKind, copyCount",
            [
                self.clock.session(start), self.clock.session(end), (rank - self.first) % self.p.gpus_per_node, 1, 0,
                stream, correlation, self.gpid(rank), size, np.where(to_device, 1, 2), np.where(to_device, 1, 2),
                np.where(to_device, 2, 1), 1,
            ],
        )  # fmt: skip

    def calls(self) -> None:
        rank, start, end, name, correlation = self.mine(self.p.api, ("rank", "start", "end", "name", "correlation"))
        driver = np.char.startswith(name.astype(str), "cu") & ~np.char.startswith(name.astype(str), "cuda")
        start, end = self.clock.session(start), self.clock.session(end)
        self.insert(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
            [start, end, driver.astype(np.int64), self.tid(rank), correlation, self.strings.of(name), 0],
        )
        sync = name == "cudaStreamSynchronize_v3020"
        if sync.any():
            self.insert(
                "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                "start, end, deviceId, contextId, streamId, correlationId, globalPid, syncType, eventId, eventSyncId",
                [
                    start[sync], end[sync], ((rank - self.first) % self.p.gpus_per_node)[sync], 1, COMPUTE_STREAM,
                    correlation[sync], self.gpid(rank[sync]), 2, 4_294_967_295, 4_294_967_295,
                ],
            )  # fmt: skip
        if len(self.p.os):
            rank, start, end, name = self.mine(self.p.os, ("rank", "start", "end", "name"))
            if rank.size:
                self.insert(
                    "OSRT_API",
                    "start, end, eventClass, globalTid, nameId, returnValue, nestingLevel, callchainId",
                    [
                        self.clock.session(start),
                        self.clock.session(end),
                        27,
                        self.tid(rank),
                        self.strings.of(name),
                        1,
                        0,
                        0,
                    ],
                )

    def ranges(self) -> None:
        rank, start, end, text, domain = self.mine(self.p.nvtx, ("rank", "start", "end", "text", "domain"))
        library = domain == "NCCL"
        plain = [None if lib else str(t) for lib, t in zip(library, text, strict=True)]
        registered = self.strings.of(text)
        ids = [i if lib else None for lib, i in zip(library, registered, strict=True)]
        for each in self.ranks:
            self.insert(
                "NVTX_EVENTS",
                "start, eventType, text, globalTid, domainId",
                [[self.clock.utc_at(0) - self.clock.session_utc], 75, "NCCL", int(self.tid(np.int64(each))), 1],
            )
        blobs: list[bytes | None] = [None] * rank.size
        if self.p.scenario.payloads:
            blobs = [
                self.payload(int(r), str(t)) if lib else None for r, t, lib in zip(rank, text, library, strict=True)
            ]
            self.payload_schemas()
        self.insert(
            "NVTX_EVENTS",
            "start, end, eventType, text, globalTid, textId, domainId, binaryData",
            [
                self.clock.session(start),
                self.clock.session(end),
                59,
                plain,
                self.tid(rank),
                ids,
                library.astype(np.int64),
                blobs,
            ],
        )

    def payload(self, rank: int, call: str) -> bytes:
        """NCCL's payload of a call as the export keeps it: header, communicator, bytes and, where it reduces, how."""
        schema, reduces = _SCHEMAS[call]
        node = rank // self.p.gpus_per_node
        communicator = 0x9E3779B97F4A7C15 if call != "ncclReduceScatter" else 0xC2B2AE3D27D4EB4F + node
        sizes = {"ncclAllReduce": 4, "ncclReduceScatter": self.p.scenario.node_op_ns * 450}
        size = sizes.get(call, self.p.scenario.messages // self.p.scenario.exchanges * self.p.scenario.message_bytes)
        body = struct.pack("<QQ", communicator, size) + (struct.pack("<i4x", 0) if reduces else b"")
        return struct.pack("<IIIIQQ", 1, 0, schema, 0, len(body), len(body) + 32) + body

    def payload_schemas(self) -> None:
        """What NCCL registers for its payloads."""
        for schema, reduces in _SCHEMAS.values():
            entries = [("NCCL communicator ID", 18, None), ("Message size [bytes]", 22, 8)]
            entries += [("Reduction operation", _REDUCTIONS, 16)] if reduces else []
            self.insert(
                "NVTX_PAYLOAD_SCHEMAS",
                "domainId, schemaId, type, numEntries, payloadSize",
                [1, [schema], 1, len(entries), 24 if reduces else 16],
            )
            self.insert(
                "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                "domainId, schemaId, idx, type, name, offset",
                [
                    1,
                    schema,
                    list(range(len(entries))),
                    *([list(c) for c in zip(*[(k, n, o) for n, k, o in entries], strict=True)]),
                ],
            )
        self.insert("NVTX_PAYLOAD_ENUMS", "domainId, schemaId, numEntries, size", [1, [_REDUCTIONS], 5, 4])
        names = ("Sum", "Product", "Max", "Min", "Avg")
        self.insert(
            "NVTX_PAYLOAD_ENUM_ENTRIES",
            "domainId, schemaId, idx, name, value",
            [1, _REDUCTIONS, list(range(5)), names, [None, 1, 2, 3, 4]],
        )

    def target(self) -> None:
        vm = VM_ID << 48
        locals_ = [rank - self.first for rank in self.ranks]
        began = np.datetime64(EPOCH_NS // 10**9, "s").astype(str)
        duration = self.clock.utc_at(self.p.end_ns) - self.clock.session_utc
        self.insert(
            "TARGET_INFO_SESSION_START_TIME", "utcEpochNs, utcTime, localTime", [[self.clock.session_utc], began, began]
        )
        self.insert("ANALYSIS_DETAILS", "globalVid, duration, startTime, stopTime", [[vm], duration, 0, duration])
        system = [
            ("Hostname", self.clock.name), ("CpuCores", "192"), ("NvDriverVersion", "570.124.06"),
            ("CudaDriverVersion", "12080"), ("OsDescription", "Ubuntu 22.04.5 LTS"),
        ]  # fmt: skip
        self.insert(
            "TARGET_INFO_SYSTEM_ENV",
            "globalVid, devStateName, name, nameEnum, value",
            [vm, "Local (CLI)", [n for n, _ in system], list(range(1, len(system) + 1)), [v for _, v in system]],
        )
        gpus = list(range(self.p.gpus_per_node))
        self.insert(
            "TARGET_INFO_GPU",
            "vmId, id, name, busLocation, isDiscrete, l2CacheSize, totalMemory, memoryBandwidth, clockRate, smCount, "
            "uuid, chipName, cuDevice, computeMajor, computeMinor, smMajor, smMinor",
            [
                vm, gpus, GPU_NAME, [f"0000:{0x18 + 0x10 * g:02x}:00.0" for g in gpus], 1, 52_428_800, 85_029_158_912,
                3_352_320_000_000, 1_980_000_000, 132, [_uuid(self.first + g) for g in gpus], "GH100", gpus, 9, 0, 9, 0,
            ],
        )  # fmt: skip
        pids = [pid(local) for local in locals_]
        self.insert("TARGET_INFO_CUDA_DEVICE", "gpuId, cudaId, pid", [locals_, locals_, pids])
        self.insert(
            "TARGET_INFO_CUDA_CONTEXT_INFO",
            "nullStreamId, hwId, vmId, processId, deviceId, contextId, parentContextId, isGreenContext",
            [COMPUTE_STREAM, 0, VM_ID, pids, locals_, 1, 0, 0],
        )
        for stream, flag in ((COMPUTE_STREAM, 3), (COPY_STREAM, 2), (COMM_STREAM, 2)):
            self.insert(
                "TARGET_INFO_CUDA_STREAM",
                "streamId, hwId, vmId, processId, contextId, priority, flag",
                [stream, 0, VM_ID, pids, 1, 0, flag],
            )
        self.insert("PROCESSES", "globalPid, pid, name", [[global_pid(local) for local in locals_], pids, "python3"])
        progress = "NCCL Progress 0" if self.p.scenario.library == "nccl" else "nvshmem proxy"
        for local in locals_:
            threads = ((pid(local), "python3"), (proxy_tid(local), progress), (worker_tid(local), "pt_data_worker"))
            self.insert(
                "ThreadNames",
                "nameId, priority, globalTid",
                [[self.strings[n] for _, n in threads], 20, [global_pid(local) | tid for tid, _ in threads]],
            )
        export = [
            ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"), ("EXPORT_PRODUCT_VERSION", _VERSION),
            ("EXPORT_SCHEMA_VERSION", "3.20.3"), ("EXPORT_SCHEMA_VERSION_MAJOR", "3"),
            ("EXPORT_SCHEMA_VERSION_MINOR", "20"), ("EXPORT_SCHEMA_VERSION_MICRO", "3"),
            ("EXPORT_PLATFORM", "linux-desktop"), ("EXPORT_ARCH", "x64"), ("EXPORT_PARAM_LAZY", "true"),
            ("EXPORT_PARAM_OUTPUT_FILE", self.path.name),
        ]  # fmt: skip
        self.insert("META_DATA_EXPORT", "name, value", list(zip(*export, strict=True)))
        environment = dict(self.p.scenario.environment)
        environment["WORLD_SIZE"] = str(self.p.ranks)
        if len(self.ranks) == 1:
            environment |= {"RANK": str(self.ranks[0]), "LOCAL_RANK": str(locals_[0])}
        capture = [
            ("CAPTURE_EVENT_TYPE", "NvtxEvents"),
            ("CAPTURE_EVENT_TYPE", "Cuda"),
            ("PROCESS_0:COMMAND", "python3"),
        ]
        capture += [("PROCESS_0:ENVIRONMENT_VARIABLE", f"{k}={v}") for k, v in sorted(environment.items())]
        self.insert("META_DATA_CAPTURE", "name, value", list(zip(*capture, strict=True)))
        self.insert(
            "DIAGNOSTIC_EVENT",
            "timestamp, timestampType, source, severity, text, globalPid",
            [[0], 1, 3, 1, "Profiling has started.", global_pid(locals_[0])],
        )
        for table, rows in _ENUMS.items():
            self.insert(table, "id, name, label", list(zip(*rows, strict=True)))


def _short(name: str) -> str:
    """A kernel's base name: without return type, namespaces, template and function arguments."""
    head = name.split("(", 1)[0] if "<" not in name.split("(", 1)[0] else name.split("<", 1)[0]
    if head.endswith("::"):  # void at::native::<unnamed>::name<...>
        head = name.split("<unnamed>::", 1)[-1].split("<", 1)[0]
    return head.removeprefix("void ").rsplit("::", 1)[-1]


def _uuid(rank: int) -> str:
    return f"5e1f0000-0000-4000-8000-{rank:012x}"
