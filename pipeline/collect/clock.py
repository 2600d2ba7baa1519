"""Readings of a node's clocks: the anchors that place a capture on the UTC axis."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path
from typing import IO

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def read_clocks(tries: int = 64) -> dict[str, int]:
    """All clocks at one instant, ns; the tightest of `tries` brackets of CLOCK_MONOTONIC around the others."""
    best: dict[str, int] | None = None
    for _ in range(tries):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        reading = {
            "monotonic_raw_ns": time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW),
            "boottime_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME),
            "realtime_ns": time.clock_gettime_ns(time.CLOCK_REALTIME),
            "tai_ns": time.clock_gettime_ns(time.CLOCK_TAI),
        }
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if best is None or after - before < best["bracket_ns"]:
            best = {"monotonic_ns": (before + after) // 2, "bracket_ns": after - before, **reading}
    assert best is not None
    return best


def write_anchor(stream: IO[str], when: str) -> None:
    """One line of anchors.jsonl: `when` is start or end."""
    anchor: dict[str, object] = {
        "type": "anchor",
        "when": when,
        "node": socket.gethostname(),
        "boot_id": _BOOT_ID.read_text(encoding="ascii").strip() if _BOOT_ID.exists() else None,
        "kernel": os.uname().release,
        **read_clocks(),
    }
    stream.write(json.dumps(anchor) + "\n")
    stream.flush()
