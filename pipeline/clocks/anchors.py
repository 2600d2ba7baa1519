"""One node's clocks: readings of several clocks at one instant, and the map from one of them to UTC."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.model.capture import Anchor, Clock
from pipeline.model.errors import UnusableInput

_MAX_DRIFT_PPB = 1_000_000
"""1000 ppm: twice what NTP may slew. Beyond it the clock was stepped between the anchors."""


@dataclass(frozen=True)
class ClockMap:
    """UTC = t + offset_ns + (t - t0_ns) * drift_ppb / 1e9, within ± error_ns between the anchors."""

    offset_ns: int
    t0_ns: int
    drift_ppb: int
    error_ns: int

    def at(self, t_ns: int) -> int:
        """UTC epoch ns of an instant on the capture's clock (as the SQL macro on_run_clock)."""
        past = t_ns - self.t0_ns
        return t_ns + self.offset_ns + _divide(past * self.drift_ppb, 10**9)


def _divide(a: int, b: int) -> int:
    """Integer division towards zero, as SQL's."""
    return a // b if a >= 0 else -(-a // b)


def clock_map(anchors: Iterable[Anchor], clock: Clock) -> ClockMap | None:
    """The map from `clock` to the node's UTC, from the first and last anchor; None where none tells.

    With one anchor, or two at one instant, the rate is taken as equal. error_ns holds the readings'
    brackets, the rounding of the rate to a whole ppb, and, where UTC was stepped between the
    anchors, the step.
    """
    if clock is Clock.REALTIME:
        return ClockMap(0, 0, 0, 0)
    if clock is Clock.NONE:
        return None

    def reading(anchor: Anchor) -> int:
        return anchor.boottime_ns if clock is Clock.BOOTTIME else anchor.monotonic_ns

    ordered = sorted(anchors, key=lambda anchor: (reading(anchor), anchor.realtime_ns))
    if not ordered:
        return None
    first, last = ordered[0], ordered[-1]
    t0, span = reading(first), reading(last) - reading(first)
    offset = first.realtime_ns - t0
    error = max(first.bracket_ns, last.bracket_ns)
    if span == 0:
        return ClockMap(offset, t0, 0, error)
    gained = last.realtime_ns - reading(last) - offset
    drift_ppb = round(gained * 10**9 / span) if abs(gained) < 2**50 else _MAX_DRIFT_PPB + 1
    if abs(drift_ppb) > _MAX_DRIFT_PPB:
        step = abs(gained)
        return ClockMap(offset + gained // 2, t0, 0, error + step - step // 2)
    rounding = abs(gained - _divide(span * drift_ppb, 10**9)) + 1
    return ClockMap(offset, t0, drift_ppb, error + rounding)


def read_anchors(path: Path) -> list[Anchor]:
    """The anchors of an anchors.jsonl, in either of its shapes. Raises UnusableInput with the line."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UnusableInput(f"can't read it: {error.strerror}", where=path) from None
    anchors = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            anchors.append(_anchor(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise UnusableInput(
                f"not an anchor: {error}",
                where=f"{path} line {number}",
                todo="an anchor has monotonic_ns, boottime_ns and realtime_ns",
            ) from None
    return anchors


def _anchor(raw: dict[str, Any]) -> Anchor:
    mono = int(raw["monotonic_ns"] if "monotonic_ns" in raw else raw["mono_ns"])
    after = raw.get("mono_after_ns")
    bracket = int(raw.get("bracket_ns", int(after) - mono if after is not None else 0))
    node = raw.get("node") or raw.get("host")
    return Anchor(
        when=str(raw.get("when") or raw.get("anchor") or ""),
        monotonic_ns=mono,
        boottime_ns=int(raw["boottime_ns"] if "boottime_ns" in raw else raw["boot_ns"]),
        realtime_ns=int(raw["realtime_ns"]),
        bracket_ns=max(0, bracket),
        node=None if node is None else str(node),
    )
