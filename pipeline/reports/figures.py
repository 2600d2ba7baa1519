"""Numbers as people read them: units beside them, shares that add up as shown, nothing invented for what is absent."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

ABSENT = "–"
"""Shown where a figure is not known. Never a zero."""


def largest_remainder(shares: Sequence[Fraction], decimals: int = 2) -> list[str]:
    """`shares` as decimal text whose shown sum is their sum, rounded (largest remainder; ties to the first).

    Shares are not negative. For bars that add up to 100 exactly, the shown figures add up to 100 too.
    """
    scale = 10**decimals
    scaled = [share * scale for share in shares]
    floors = [int(value // 1) for value in scaled]
    missing = round(sum(scaled, Fraction(0))) - sum(floors)
    order = sorted(range(len(shares)), key=lambda i: (floors[i] - scaled[i], i))
    for index in order[:missing]:
        floors[index] += 1
    return [f"{value // scale}.{value % scale:0{decimals}d}" if decimals else str(value) for value in floors]


_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"), (1, "ns"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def time(ns: float | None) -> str:
    """A duration in ns with the unit that gives three significant digits."""
    if ns is None:
        return ABSENT
    for unit_ns, unit in _TIMES:
        if abs(ns) >= unit_ns or unit_ns == 1:
            return f"{_three(ns / unit_ns)} {unit}"
    raise AssertionError


def milliseconds(ns: float | None) -> str:
    """A duration in ns as ms with three decimals, for columns that must line up."""
    return ABSENT if ns is None else f"{ns / 1e6:,.3f}"


def size(n_bytes: float | None) -> str:
    """A size in bytes, binary units."""
    if n_bytes is None:
        return ABSENT
    for unit_bytes, unit in _SIZES:
        if abs(n_bytes) >= unit_bytes or unit_bytes == 1:
            return f"{_three(n_bytes / unit_bytes)} {unit}"
    raise AssertionError


def bandwidth(bytes_per_s: float | None) -> str:
    """A one-way bandwidth in bytes/s as GB/s or MB/s, decimal units as the field uses them."""
    if bytes_per_s is None:
        return ABSENT
    if bytes_per_s >= 1e9:
        return f"{_three(bytes_per_s / 1e9)} GB/s"
    return f"{_three(bytes_per_s / 1e6)} MB/s"


def count(n: int | None) -> str:
    return ABSENT if n is None else f"{n:,}"


def percent(share: float | None, decimals: int = 1) -> str:
    """A share of one as percent."""
    return ABSENT if share is None else f"{100 * share:.{decimals}f} %"


def value(number: float) -> str:
    """A number in the unit that stands beside it: four significant digits, no exponent."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def _three(value: float) -> str:
    magnitude = abs(value)
    if magnitude >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"
