"""A large Nsight Systems SQLite export with the tables, columns and proportions of real ones, for measuring speed.

    python benchmarks/generate_nsys.py OUT.sqlite --kernels 5000000 [--processes 1] [--first-rank 0]

Per kernel one launch call; per 100 kernels 14 NVTX ranges, among them 2 of NCCL with their kernels; a step range
every 4000 kernels. Times, ids and names are a function of the row's number: two runs give the same file.
"""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Iterator
from pathlib import Path

_SCHEMA = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL,
    greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER,
    cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
    gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL,
    staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
    localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER,
    sharedMemoryLimitConfig INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER,
    text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER,
    int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER,
    jsonText TEXT, binaryData TEXT);
"""

_FUNCTORS = ("FillFunctor<c10::BFloat16>", "CUDAFunctor_add<float>", "BinaryFunctor<float, float, float>")
_KERNELS = [
    *(
        (
            "vectorized_elementwise_kernel",
            f"void at::native::vectorized_elementwise_kernel<(int){n}, at::native::{f}>(int, T2, T3)",
        )
        for n in range(1, 9)
        for f in _FUNCTORS
    ),
    *((f"nvjet_tst_{m}x{n}_64x4_2x1_v_bz_TNN",) * 2 for m in (64, 96, 128, 192) for n in (64, 128, 192, 208, 256)),
    ("flash_fwd_kernel", "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128>>(flash::Params)"),
]
_NCCL = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096>)",
)
_APIS = ("cudaLaunchKernel_v7000", "cudaLaunchKernelExC_v11060")
_KERNEL_NS, _PERIOD_NS, _RANGES_PER_100, _STEP = 8_000, 10_000, 14, 4_000


def generate(path: Path, kernels: int, *, processes: int = 1, first_rank: int = 0) -> None:
    """Write the export; `kernels` in all, spread over the processes. Raises FileExistsError."""
    if path.exists():
        raise FileExistsError(path)
    connection = sqlite3.connect(path)
    connection.executescript(_SCHEMA)
    strings = [*_NCCL, *_APIS, "ncclAllReduce", "NCCL", *(s for pair in _KERNELS for s in pair)]
    ids = {value: number for number, value in enumerate(strings, 1)}
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, v) for v, i in ids.items()])
    connection.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, NULL, NULL)", [1_790_000_000_000_000_000])
    connection.execute(
        "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Local (CLI)', 'Hostname', 619, ?)",
        [f"node{first_rank // 8}"],
    )
    connection.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2025.3.2.0')")
    names = [(ids[short], ids[full]) for short, full in _KERNELS]
    each = kernels // processes
    for process in range(processes):
        pid = 1_000 + process
        global_pid = (1 << 48) | (pid << 24)
        connection.execute("INSERT INTO PROCESSES VALUES (?, ?, 'python3')", (global_pid, pid))
        tid = global_pid | pid
        connection.executemany(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 28)})",
            _kernels(each, global_pid, process, names, (ids[_NCCL[0]], ids[_NCCL[1]])),
        )
        connection.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)",
            ((_launched(i), _launched(i) + 4_000, tid, i + 1, ids[_APIS[i % 7 == 0]]) for i in range(each)),
        )
        connection.execute(
            "INSERT INTO NVTX_EVENTS (start, eventType, globalTid, domainId, text) VALUES (0, 75, ?, 1, 'NCCL')",
            [tid],
        )
        connection.executemany(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, textId, domainId) VALUES (?, ?, 59, ?, ?, ?, ?)",
            _ranges(each, tid, ids["ncclAllReduce"]),
        )
    connection.commit()
    connection.close()


def _launched(i: int) -> int:
    return i * _PERIOD_NS - 200_000


def _kernels(
    count: int, global_pid: int, device: int, names: list[tuple[int, int]], nccl: tuple[int, int]
) -> Iterator[tuple[int | None, ...]]:
    rest = (None, 0, 0, 32, 132, 1, 1, 256, 1, 1, 0, 0, 0, 1 << 20)
    for i in range(count):
        comm = i % 50 == 49
        short, full = nccl if comm else names[i * 7 % len(names)]
        start = i * _PERIOD_NS
        yield (
            start, start + _KERNEL_NS - i % 13 * 100, device, 1, None, 20 if comm else 7, i + 1, global_pid,
            full, short, *rest, i, 65_536, None, 0,
        )  # fmt: skip


def _ranges(count: int, tid: int, nccl: int) -> Iterator[tuple[int | str | None, ...]]:
    for first in range(0, count, 100):
        if first % _STEP == 0:
            start, end = _launched(first) - 500, _launched(first + _STEP) - 600
            yield start, end, f"step_{first // _STEP}", tid, None, 0
        rows: list[tuple[int, int, str | None, int, int | None, int]] = []
        for k in range(_RANGES_PER_100 - 2):
            at = _launched(first + 8 * k)
            rows.append((at - 100, at + 7 * _PERIOD_NS, f"aten::linear, op_id = {first + k}", tid, None, 0))
        for at in (first + 49, first + 99):
            rows.append((_launched(at) - 50, _launched(at) + 4_050, None, tid, nccl, 1))
        yield from sorted(rows, key=lambda row: row[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--first-rank", type=int, default=0)
    arguments = parser.parse_args()
    generate(
        arguments.path,
        arguments.kernels,
        processes=arguments.processes,
        first_rank=arguments.first_rank,
    )


if __name__ == "__main__":
    main()
