"""Record lines are read alike both ways, blocks are cut between lines, and parts of calls find each other."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sources import _ebpf_lines, _text
from pipeline.sources._ebpf_lines import LineParser
from tests.sources.conftest import read_capture

KINDS = (b"PO", b"PC", b"WK", b"SI", b"SO", b"DB", b"PS", b"PX", b"SW")
LAYOUTS = {"PO": 17, "PC": 12, "WK": 6, "SI": 5, "SO": 5}
NUMBERS = st.sampled_from(["0", "1", "7", "128", "257", "4294967285", "9223372036854775807"])
ODD = st.sampled_from(
    [
        "-11", "18446744073709551605", "18446744073709551616", "0x1f", "0xfffffffffffffff5", "", "x", "+5", " 7", "7 ",
        "1_000", "1.0", "1e3", "007", "-0", r"\0", '"5"', "NULL", "\t5", "5\r", "#1",
    ]
)  # fmt: skip


@st.composite
def record(draw: st.DrawFn) -> str:
    """A line: mostly as the collector prints it, sometimes with an odd field, fields too many or too few."""
    kind = draw(st.sampled_from(sorted(LAYOUTS)))
    fields = [kind, *(draw(NUMBERS) for _ in range(LAYOUTS[kind] - 1))]
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        fields[draw(st.integers(2, len(fields) - 1))] = draw(ODD)
    if draw(st.integers(0, 9)) == 0:
        fields = (fields + ["3"] * 9)[: draw(st.integers(2, 20))]
    return ",".join(fields)


def parse(parser: LineParser, lines: Sequence[str]) -> tuple[dict[str, Any], list[int], list[bytes]]:
    found = parser.parse(_text.split("".join(line + "\n" for line in lines).encode(), KINDS))
    return {name: t.to_pylist() for name, t in found.tables.items()}, found.times.tolist(), list(found.bad_lines)


@settings(max_examples=40, deadline=None)
@given(blocks=st.lists(st.lists(record(), min_size=1, max_size=30), min_size=1, max_size=3))
def test_lines_that_arrow_takes_are_what_the_queries_read(blocks: list[list[str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ebpf_lines, "_FEW_LINES", 2)
        patch.setattr(_ebpf_lines, "_PIECE_LINES", 11)
        fast = LineParser()
        got = [parse(fast, block) for block in blocks]
        patch.setattr(_ebpf_lines, "_LAYOUTS", ())
        slow = LineParser()
        expected = [parse(slow, block) for block in blocks]
    fast.close()
    slow.close()
    assert expected == got


def test_whole_lines_of_plain_numbers_need_no_query(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden() -> None:
        raise AssertionError("a query was asked")

    monkeypatch.setattr(_ebpf_lines, "_AnyLayout", forbidden)
    lines = ["PO,1,2,10,11,3,417,0,0,2,1,5000000a0000,1,0,2,4096,-11", "PC,3,10,11,3,1,0,5,12,129,0,417"]
    lines += ["WK,4,11,3,9,2", "SI,5,11,3,0", "SO,6,11,3,1", "SO,7,11,3,256"]
    tables, times, bad = parse(LineParser(), lines)
    assert (times, bad) == ([2, 3, 4, 5, 6, 7], [])
    assert [tables["posts_in"][0][name] for name in ("enter_ns", "flags", "bytes", "ret")] == [1, 2, 4096, -11]
    assert [tables["polls_in"][0][name] for name in ("wr_id", "status", "opcode", "qp")] == [5, 12, 129, 417]
    assert [
        tuple(row[name] for name in ("kind", "at_ns", "cpu", "other", "class")) for row in tables["switches_in"]
    ] == [
        ("wake", 4, None, 9, None),
        ("in", 5, 3, 0, None),
        ("out", 6, 3, None, "blocked"),
        ("out", 7, 3, None, "runnable"),
    ]


@settings(max_examples=50, deadline=None)
@given(
    lines=st.lists(
        st.sampled_from(["PO,1", "PC,2,33", "", "x", "<<<<PO,1", "PC,5>>>>>", "<<<<>>>>>", "<<<<>>>"]), min_size=1
    ),
    wraps=st.lists(st.booleans(), min_size=20, max_size=20),
)
def test_lines_are_picked_without_what_they_are_wrapped_in(lines: list[str], wraps: list[bool]) -> None:
    head, tail = b"<<<<<", b">>>>>"
    texts = [line.encode() for line in lines[:20]]
    whole = [head + text + tail if wrap else text for text, wrap in zip(texts, wraps, strict=False)]
    found = _text.split(b"".join(line + b"\n" for line in whole), KINDS, (head, tail))
    expected = [
        text[5:-5] if text.startswith(head) and text.endswith(tail) and len(text) >= 10 else text for text in whole
    ]
    assert expected == [found.line(i) for i in range(len(whole))]
    assert found.unwrapped() == b"".join(a + b"\n" for a, b in zip(expected, whole, strict=True) if a == b)
    rows = np.arange(len(whole))[::2]
    assert bytes(found.pick(rows)) == b"".join(expected[i] + b"\n" for i in rows)
    assert found.record.tolist() == [
        text[:2] in KINDS and text[2:3] == b"," and text[3:4].isdigit() for text in expected
    ]


@settings(max_examples=50, deadline=None)
@given(
    text=st.lists(st.sampled_from([b"\n", b"a", b"bc", b"{", b"\n{"]), max_size=30).map(b"".join),
    size=st.integers(1, 9),
    lead=st.sampled_from([b"", b"{"]),
    window=st.sampled_from([1, 3, 100]),
)
def test_blocks_are_the_file_cut_behind_line_feeds(text: bytes, size: int, lead: bytes, window: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_text, "_WINDOW_BYTES", window)
        path = Path(folder) / "text"
        path.write_bytes(text)
        found = list(_text.blocks(path, size=size, lead=lead))
    assert b"".join(block for block, _ in found) == text
    assert all(block for block, _ in found)
    at = 0
    for block, cut in found[:-1]:
        at += len(block)
        assert (block[-1:], text[at : at + len(lead)], cut) == (b"\n", lead, False)
    assert [cut for _, cut in found[-1:]] == ([not text.endswith(b"\n")] if text else [])


def test_a_line_longer_than_a_line_may_be_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_text, "MAX_LINE_BYTES", 6)
    path = tmp_path / "text"
    path.write_bytes(b"abcdefghij\nkl\n")
    assert list(_text.blocks(path, size=4)) == [(b"abcdefgh", False), (b"ij\n", False), (b"kl\n", False)]


CALLS = st.lists(
    st.tuples(st.sampled_from([11, 12]), st.booleans(), st.booleans(), st.integers(1, 90_000_000)), max_size=25
)


@settings(max_examples=40, deadline=None)
@given(calls=CALLS, size=st.sampled_from([60, 300, 1 << 20]), seed=st.integers(0, 9))
def test_parts_of_calls_find_each_other_in_any_order_and_across_blocks(
    calls: list[tuple[int, bool, bool, int]], size: int, seed: int
) -> None:
    """A call is its entry, and what follows in its thread before the next entry. Returns get lost, doorbells are rare."""
    clock = {11: 1_000_000_000, 12: 1_000_000_000}
    records, expected = [], []
    for number, (tid, rings, returns, step) in enumerate(calls):
        enter = clock[tid] = clock[tid] + step
        records.append((enter, f"PS,{enter},10,{tid},3,417,{number},0,2,1,4096,5000,0"))
        if rings:
            records.append((enter + 5, f"DB,{enter + 5},10,{tid},3"))
        if returns:
            records.append((enter + 9, f"PX,{enter + 9},10,{tid},3,3000,-11"))
        clock[tid] = enter + 9
        expected.append((tid, number, enter, enter + 5 if rings else None, enter + 9 if returns else None))
    order = random.Random(seed)
    # Each core's buffer comes as a whole: up to 100 ms late.
    lines = [line for _, line in sorted(records, key=lambda record: record[0] + order.randint(0, 100_000_000))]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setitem(_text.blocks.__kwdefaults__, "size", size)
        path = Path(folder) / "x.csv"
        path.write_text(
            "\n".join(["META,1000000000,clock,boottime", "PC,1000000000,10,11,3,1,0,0,0,1,0,417", *lines, ""])
        )
        read = read_capture(path)
    found = read.brief("rdma_posts", "tid", "wr_id", "enter_ns", "doorbell_ns", "exit_ns")
    assert sorted(found) == sorted(expected)
    assert read.account.bad_line_count == 0
