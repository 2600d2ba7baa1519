"""Debug logs of NCCL and NVSHMEM: the lines that say which path is taken, what fell back, and what went wrong.

A line becomes a row of log_events with a stable `code`; everything else in a log is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.model.capture import ENVIRONMENT_ALLOW_LIST, Account, Capture, Clock, Process
from pipeline.model.run import RunConfig
from pipeline.sources import _text
from pipeline.sources._plain import batches, head

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "log"
MAX_TEXT = 2_000

_LINE = re.compile(
    r"^(?:\[(?P<stamp>[-0-9:. /]{8,32})\]\s*)?(?:\[?\d+\]?:\s*)?"
    r"(?P<host>[\w.-]+):(?P<pid>\d{1,10}):(?P<tid>\d{1,10})\s+\[(?P<device>-?\d+)\]\s+(?:.*?:\d+\s+)?"
    r"(?P<library>NCCL|NVSHMEM)\s+(?P<level>INFO|WARN|ERROR|TRACE|ABORT)\s+(?P<text>.*)$"
)
_ANY = re.compile(rb"NCCL (?:INFO|WARN|ERROR|ABORT)|NVSHMEM|ibgda|IBGDA|fallback path|remote transport")


@dataclass(frozen=True)
class _Rule:
    """A line that means `code`. library: whose line it is where the line does not say."""

    code: str
    severity: str
    library: str
    pattern: re.Pattern[str]


def _rule(code: str, severity: str, library: str, pattern: str) -> _Rule:
    return _Rule(code, severity, library, re.compile(pattern))


RULES: tuple[_Rule, ...] = (
    # GPU-initiated posts fall back. Three grades: the GPU builds the work request and the CPU rings the doorbell;
    # a CPU proxy does both; memory is registered by the older module only, which is not slower.
    _rule(
        "nvshmem_doorbell_by_cpu",
        "warning",
        "nvshmem",
        r"cudaHostRegister with IoMemory failed with error=\S+\s+We may need to use a fallback path",
    ),
    _rule(
        "nvshmem_doorbell_by_cpu",
        "warning",
        "nvshmem",
        r"ibgda_nic_mem_gpu_map failed\.\s+We may need to use the CPU fallback path",
    ),
    _rule(
        "nvshmem_doorbell_by_cpu",
        "warning",
        "nvshmem",
        r"ibgda_alloc_and_map_qp_uar with GPU as handler failed\.\s+We may need to enter the CPU fallback path",
    ),
    _rule("nvshmem_nic_handler_needs_gdrcopy", "error", "nvshmem", r"NVSHMEM_IBGDA_NIC_HANDLER=cpu requires GDRCopy"),
    _rule(
        "nvshmem_registration_by_peermem",
        "info",
        "nvshmem",
        r"does not support registering the NIC control buffers with DMABUF\.\s+Fallback to use either nv_peer_mem or nvidia_peermem",
    ),
    _rule("nvshmem_transport_init_failed", "error", "nvshmem", r"init failed for remote transport: \S+"),
    _rule("nvshmem_version", "info", "nvshmem", r"NVSHMEM v?\d+\.\d+|NVSHMEM version"),
    _rule("env", "info", "env", r"(?P<name>(?:NCCL|NVSHMEM)_[A-Z0-9_]+) set (?:by environment )?to (?P<value>.*?)\.?$"),
    _rule("nccl_version", "info", "nccl", r"NCCL version \S+"),
    _rule("nccl_net_ib_devices", "info", "nccl", r"NET/IB\s*: Using \[\d+\]"),
    _rule("nccl_net_ib_none", "warning", "nccl", r"NET/IB\s*: No device found"),
    _rule("nccl_gdr_disabled", "warning", "nccl", r"GPU Direct RDMA Disabled"),
    _rule("nccl_gdr_enabled", "info", "nccl", r"GPU Direct RDMA Enabled|\bGDRDMA\b.*enabled"),
    _rule("nccl_net_selected", "info", "nccl", r"Using network \S+"),
    _rule("nccl_net_socket", "warning", "nccl", r"NET/Socket\s*: Using \["),
    _rule("nccl_gin", "info", "nccl", r"\bGIN\b"),
    _rule("nccl_path_net_gdrdma", "info", "nccl", r"(?:\[(?:send|receive)\] )?via NET/[\w-]+/\d+(?:\(\d+\))?/GDRDMA"),
    _rule("nccl_path_net", "info", "nccl", r"(?:\[(?:send|receive)\] )?via NET/[\w-]+/\d+"),
    _rule("nccl_path_p2p", "info", "nccl", r"via P2P/\S+"),
    _rule("nccl_path_shm", "info", "nccl", r"via SHM\b"),
    _rule("nccl_path_nvls", "info", "nccl", r"NVLS (?:multicast|comm)|via NVLS"),
    _rule("nccl_channels", "info", "nccl", r"\d+ coll channels.*p2p channels"),
    _rule("nccl_pxn", "info", "nccl", r"Connected all (?:rings|trees).*PXN \d"),
    _rule("nccl_comm", "info", "nccl", r"ncclCommInitRank\w* comm \S+ rank \d+ nranks \d+ .*Init COMPLETE"),
)
"""In order: the first that matches names the line."""

_REPEATED = {"nccl_path_net_gdrdma", "nccl_path_net", "nccl_path_p2p", "nccl_path_shm"}
"""A line a channel and peer: the first of each code, process and path stands for all."""
_INTERESTING = re.compile(
    rb"[^\n]*(?:NCCL WARN|NCCL ERROR|NVSHMEM|ibgda|We may need to|remote transport|DMABUF|set (?:by environment )?to |NCCL version"
    rb"|NET/IB|NET/Socket|GPU Direct RDMA|GDRDMA|Using network|GIN\b|via (?:NET|P2P|SHM|NVLS)|NVLS|coll channels|Connected all"
    rb"|Init COMPLETE)[^\n]*"
)
_ENV = re.compile(ENVIRONMENT_ALLOW_LIST)


def claims(path: Path) -> bool:
    """A text file in which NCCL or NVSHMEM lines occur near the start."""
    text = head(path, 256 << 10)
    return len(_ANY.findall(text)) > 0 and not text.lstrip().startswith((b"{", b"["))


def inspect(path: Path, config: RunConfig) -> Capture:
    """Host and processes, from the first part of the log. A log has no clock that can be placed."""
    hosts: dict[str, None] = {}
    pids: dict[int, None] = {}
    version = None
    for line in head(path, 1 << 20).decode("utf-8", "replace").splitlines():
        if found := _LINE.match(line):
            hosts[found["host"]] = None
            pids[int(found["pid"])] = None
            if said := re.search(r"NCCL version (\S+)", found["text"]):
                version = said[1]
    return Capture(
        path=path,
        kind=KIND,
        tool="NCCL/NVSHMEM debug log",
        tool_version=version,
        host=next(iter(hosts)) if len(hosts) == 1 else None,
        clock=Clock.NONE,
        processes=tuple(Process(key=pid, pid=pid) for pid in pids),
        present=("log",),
        bytes=path.stat().st_size,
    )


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Recognised lines. A line's own host is its node; its rank is that of its pid."""
    yield from batches("log_events", _events(capture.path, ranks, node, account))


def _events(path: Path, ranks: Mapping[int, int], node: str, account: Account) -> Iterator[dict[str, Any]]:
    seen: set[tuple[object, ...]] = set()
    for block, _ in _text.blocks(path):
        for found in _INTERESTING.finditer(block):
            line = found[0].decode("utf-8", "replace").replace("\0", "").strip()
            head_of = _LINE.match(line)
            text = head_of["text"] if head_of else line
            process: tuple[str, int, str] | None = None
            if head_of:
                process = (head_of["host"], int(head_of["pid"]), head_of["device"])
            event = _event(text, head_of)
            if event is None:
                continue
            rank = ranks.get(process[1]) if process else None
            key: tuple[object, ...] = (event["code"], process, event["text"])
            if event["code"] in _REPEATED:
                via = re.search(r"via (\S+)", text)
                key = (event["code"], process, via[1] if via else None)
            if key in seen:
                continue
            if len(seen) < 1_000_000:
                seen.add(key)
            yield {"node": process[0] if process else node, "rank": rank, **event}


def _event(text: str, line: re.Match[str] | None) -> dict[str, Any] | None:
    for rule in RULES:
        found = rule.pattern.search(text)
        if not found:
            continue
        if rule.code == "env":
            if not _ENV.match(found["name"]):
                return None
            value = found["value"].strip('"')
            return {
                "source": "env",
                "code": found["name"],
                "severity": "info",
                "text": f"{found['name']}={value}"[:MAX_TEXT],
            }
        return {"source": rule.library, "code": rule.code, "severity": rule.severity, "text": text[:MAX_TEXT]}
    if line and line["level"] in ("WARN", "ERROR", "ABORT"):
        library = line["library"].lower()
        severity = "warning" if line["level"] == "WARN" else "error"
        return {
            "source": library,
            "code": f"{library}_{line['level'].lower()}",
            "severity": severity,
            "text": text[:MAX_TEXT],
        }
    return None
