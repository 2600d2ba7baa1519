"""Numbers as people read them."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.reports import figures


@settings(deadline=None, max_examples=200)
@given(parts=st.lists(st.integers(0, 10**12), min_size=1, max_size=30).filter(any), decimals=st.integers(0, 3))
def test_shown_shares_of_a_whole_add_up_to_100_exactly(parts: list[int], decimals: int) -> None:
    whole = sum(parts)
    shares = [Fraction(100 * part, whole) for part in parts]
    shown = [Decimal(text) for text in figures.largest_remainder(shares, decimals)]
    assert sum(shown) == 100
    assert all(
        abs(Fraction(text) - share) < Fraction(1, 10**decimals) for text, share in zip(shown, shares, strict=True)
    )


def test_the_largest_remainder_gets_the_missing_digit_and_ties_go_to_the_first() -> None:
    thirds = [Fraction(100, 3)] * 3
    assert figures.largest_remainder(thirds, 1) == ["33.4", "33.3", "33.3"]


@pytest.mark.parametrize(
    ("ns", "expected"),
    [
        (None, "–"), (0, "0 ns"), (999, "999 ns"), (1_200, "1.20 µs"), (12_345, "12.3 µs"), (1_850_000_000, "1.85 s"),
        (-84_500, "-84.5 µs"), (258_794, "259 µs"),
    ],
)  # fmt: skip
def test_times_have_three_digits_and_a_unit(ns: int | None, expected: str) -> None:
    assert figures.time(ns) == expected


@pytest.mark.parametrize(
    ("n", "expected"), [(None, "–"), (0, "0 B"), (114_688, "112 KiB"), (270_000, "264 KiB"), (1 << 30, "1 GiB")]
)
def test_sizes_are_binary(n: int | None, expected: str) -> None:
    assert figures.size(n) == expected


def test_bandwidths_are_decimal_and_absent_is_a_dash() -> None:
    assert [figures.bandwidth(v) for v in (50e9, 46.75e9, 12.5e6, None)] == ["50 GB/s", "46.8 GB/s", "12.5 MB/s", "–"]
