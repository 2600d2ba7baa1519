"""A node's clocks: exact integers from readings at one instant, in Python and in SQL alike."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.clocks.anchors import ClockMap, clock_map, read_anchors
from pipeline.model.capture import Anchor, Clock
from pipeline.model.errors import UnusableInput
from pipeline.model.library import sql

UTC = 1_790_000_000_000_000_000
DATABASE = duckdb.connect()
DATABASE.execute(sql("on_run_clock"))


def anchor(boot: int, realtime: int, bracket: int = 0) -> Anchor:
    return Anchor("", boot - 5, boot, realtime, bracket)


def test_one_anchor_gives_the_offset() -> None:
    assert ClockMap(UTC - 100, 100, 0, 7) == clock_map([anchor(100, UTC, 7)], Clock.BOOTTIME)
    assert ClockMap(UTC - 95, 95, 0, 7) == clock_map([anchor(100, UTC, 7)], Clock.MONOTONIC)


def test_two_anchors_give_the_rate_too_and_both_ends_fit() -> None:
    second = 10**9
    found = clock_map([anchor(60 * second, UTC + 60 * second + 300_000), anchor(0, UTC)], Clock.BOOTTIME)
    assert ClockMap(UTC, 0, 5_000, 1) == found
    assert (UTC, UTC + 60 * second + 300_000) == (found.at(0), found.at(60 * second))


def test_a_stepped_utc_is_an_error_bound_and_no_rate() -> None:
    found = clock_map([anchor(0, UTC), anchor(10**9, UTC + 2 * 10**9)], Clock.BOOTTIME)
    assert ClockMap(UTC + 5 * 10**8, 0, 0, 5 * 10**8) == found


def test_without_anchors_only_utc_itself_is_known() -> None:
    assert None is clock_map([], Clock.BOOTTIME)
    assert None is clock_map([], Clock.NONE)
    assert ClockMap(0, 0, 0, 0) == clock_map([], Clock.REALTIME)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=5),
    st.integers(-(10**6), 10**6),
    st.integers(0, 10**14),
)
def test_sql_and_python_map_alike_and_exactly(times: list[int], drift_ppb: int, t0_ns: int) -> None:
    mapped = ClockMap(UTC, t0_ns, drift_ppb, 0)
    rows = DATABASE.execute(
        "SELECT on_run_clock(t, $2, $3, $4) FROM (SELECT unnest($1::BIGINT[]) AS t)", [times, UTC, t0_ns, drift_ppb]
    ).fetchall()
    assert [mapped.at(t) for t in times] == [row[0] for row in rows]
    for t in times:
        past = (t - t0_ns) * drift_ppb
        assert t + UTC + (abs(past) // 10**9) * (1 if past >= 0 else -1) == mapped.at(t)


def test_both_shapes_of_anchors_are_read(tmp_path: Path) -> None:
    path = tmp_path / "anchors.jsonl"
    new = {"type": "anchor", "when": "start", "node": "n1", "monotonic_ns": 1, "boottime_ns": 2, "realtime_ns": 3}
    old = {"anchor": "end", "mono_ns": 1, "mono_raw_ns": 0, "boot_ns": 2, "realtime_ns": 3, "mono_after_ns": 5}
    path.write_text("\n".join(json.dumps(each) for each in ({**new, "bracket_ns": 9}, old)) + "\n\n")
    assert [Anchor("start", 1, 2, 3, 9, "n1"), Anchor("end", 1, 2, 3, 4, None)] == read_anchors(path)


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"monotonic_ns": 1}', '{"monotonic_ns": "x", "boottime_ns": 1}'])
def test_what_is_no_anchor_is_told_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "anchors.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(UnusableInput, match=r"anchors\.jsonl line 2: not an anchor"):
        read_anchors(path)


def test_a_real_pair_of_anchors_gives_a_plausible_rate() -> None:
    recorded = Path(__file__).parents[1] / "data/ebpf/run_collect023/anchors.jsonl"
    found = clock_map(read_anchors(recorded), Clock.BOOTTIME)
    assert found is not None
    assert (abs(found.drift_ppb) < 100_000, found.error_ns < 2_000) == (True, True)
