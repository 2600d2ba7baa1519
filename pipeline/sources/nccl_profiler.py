"""Traces of NCCL profiler plugins: the example plugin's Chrome events, and JSONL with one record an event.

Their clock counts time-stamp-counter ticks as µs, from the plugin's start or from the machine's: it can't be placed
beside others. So sizes, sequence numbers, phases and queue pairs are taken; nothing is drawn on a shared time line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.model.capture import Account, Capture, Clock, Process
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources import _nccl_json
from pipeline.sources._plain import head

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "nccl_profiler"
_CHROME = re.compile(rb'"cat":\s*"(?:GROUP|GROUP_API|COLL|COLL_API|P2P|P2P_API|PROXY|NET|NET_IB|KERNEL_LAUNCH)"')
_RECORDS = re.compile(rb'"type":\s*"(?:ProfilerLifecycle|ncclProfile[A-Za-z0-9]+)"')
_PID = re.compile(rb'"pid":\s*(\d{1,10})\b')


def claims(path: Path) -> bool:
    """JSON whose events carry NCCL's categories or types."""
    text = head(path)
    return text.lstrip()[:1] in (b"{", b"[") and bool(_CHROME.search(text) or _RECORDS.search(text))


def inspect(path: Path, config: RunConfig) -> Capture:
    """Processes, from the file's first part. Raises UnusableInput without an event."""
    text = head(path, 4 << 20)
    pids = sorted({int(pid) for pid in _PID.findall(text)})
    if not pids:
        raise UnusableInput("no event in it", where=path)
    return Capture(
        path=path,
        kind=KIND,
        tool="NCCL profiler plugin",
        clock=Clock.NONE,
        processes=tuple(Process(key=pid, pid=pid) for pid in pids),
        present=("comm_ops", *(["comm_phases"] if b'"NET"' in text or b"ncclProfileProxyStep" in text else [])),
        bytes=path.stat().st_size,
    )


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Operations, proxy phases and queue pairs. Where a process holds one rank, it is that of its pid."""
    chrome = _CHROME.search(head(capture.path)) is not None
    yield from _nccl_json.run(
        capture,
        ranks,
        node,
        account,
        extract="_profiler_chrome_events" if chrome else "_profiler_record_events",
        queries=("_nccl_type_bytes", "_profiler_spans", "_profiler_comm_ops", "_profiler_phases", "_profiler_qps")
        if chrome
        else ("_nccl_type_bytes", "_profiler_record_ops"),
        outputs={"comm_ops": "_profiler_comm_ops", "comm_phases": "_profiler_phases", "rdma_qps": "_profiler_qps"}
        if chrome
        else {"comm_ops": "_profiler_record_ops"},
    )
