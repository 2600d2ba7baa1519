"""Samples the counters of RDMA devices and their network interfaces, those that their link layer really has.

InfiniBand and Ethernet (RoCE) ports share sysfs; priority flow control is counted by ethtool alone, and only
Ethernet has it. CSV with a header: node,device,port,link_layer,counter,at_ns,value (at_ns CLOCK_REALTIME).
"""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from pipeline.model.errors import MfulossError

HEADER = "node,device,port,link_layer,counter,at_ns,value"
_ETHTOOL = re.compile(r"^\s*([^:\s][^:]*):\s*(\d+)\s*$")
_ETHTOOL_WANTED = re.compile(r"pause|prio\d|discard|ecn|cnp|out_of_buffer|_phy$|_vport_rdma_", re.IGNORECASE)


def samples(node: str, sysfs: Path = Path("/sys/class/infiniband")) -> Iterator[str]:
    """One reading of every counter, as CSV lines. The time is read just before each counter."""
    for port in sorted(sysfs.glob("*/ports/*")):
        device = port.parent.parent.name
        layer = _read(port / "link_layer") or ""
        for file in sorted([*port.glob("counters/*"), *port.glob("hw_counters/*")]):
            at_ns = time.time_ns()
            value = _read(file)
            if value is not None and value.isdigit():
                yield f"{node},{device},{port.name},{layer},{file.name},{at_ns},{value}"
        if layer == "Ethernet":
            for interface in sorted((port.parent.parent / "device" / "net").glob("*")):
                yield from _ethtool(node, device, port.name, interface.name)


def _ethtool(node: str, device: str, port: str, interface: str) -> Iterator[str]:
    if shutil.which("ethtool") is None:
        return
    at_ns = time.time_ns()
    done = subprocess.run(["ethtool", "-S", interface], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        match = _ETHTOOL.match(line)
        if match and _ETHTOOL_WANTED.search(match[1]):
            yield f"{node},{device},{port},Ethernet,{match[1].strip()},{at_ns},{match[2]}"


def _read(path: Path) -> str | None:
    try:
        text = path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # a counter that this device does not have
        return None
    return text.split(":")[-1].strip() if path.name == "link_layer" else text


def record(
    stream: IO[str], *, interval_s: float, seconds: float | None, sysfs: Path = Path("/sys/class/infiniband")
) -> int:
    """Write samples every `interval_s` until `seconds` are over or SIGINT/SIGTERM; readings written.

    Raises MfulossError where the node has no RDMA device.
    """
    if not any(sysfs.glob("*/ports/*")):
        raise MfulossError("this node has no RDMA device", where=sysfs, todo="run it where the NICs are")
    asked: list[int] = []
    before = {s: signal.signal(s, lambda number, _frame: asked.append(number)) for s in (signal.SIGINT, signal.SIGTERM)}
    node = socket.gethostname()
    written = 0
    begin = time.monotonic()
    try:
        stream.write(HEADER + "\n")
        while not asked:
            for line in samples(node, sysfs):
                stream.write(line + "\n")
                written += 1
            stream.flush()
            if seconds is not None and time.monotonic() - begin >= seconds:
                break
            time.sleep(min(interval_s, max(0.0, (seconds or interval_s) - (time.monotonic() - begin))))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return written
