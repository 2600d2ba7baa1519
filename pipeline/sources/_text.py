"""Line-oriented text in blocks of whole lines, and which of a block's lines are records."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

BLOCK_BYTES = 16 << 20
"""Size of a block. Memory is a small multiple of it."""
MAX_LINE_BYTES = 64 << 20
"""A line (or an object over several lines) longer than this is taken as it comes, cut."""
_WINDOW_BYTES = 64 << 10
_PIECE = 1 << 20


def blocks(
    path: Path, *, size: int = BLOCK_BYTES, boundary: bytes = b"\n", lead: bytes = b""
) -> Iterator[tuple[bytes, bool]]:
    """Yield (block, cut): blocks that end behind a `boundary`; `cut` is true for a last line without line feed.

    lead: what a record starts with. With it, blocks end between two records, before the last one's start.
    """
    begin = target = 0
    with path.open("rb") as file:
        total = os.fstat(file.fileno()).st_size
        while begin < total:
            target = min(target + size, total)
            end = _last(file, boundary + lead, begin, target)
            if end is not None:
                end += len(boundary)
            elif target - begin >= MAX_LINE_BYTES:
                end = target
            elif target < total:
                continue
            else:
                break
            yield _bytes(file, begin, end), False
            begin = end
        if rest := _bytes(file, begin, total):
            yield rest, not rest.endswith(b"\n")


def _bytes(file: BinaryIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(end - begin)


def _last(file: BinaryIO, mark: bytes, begin: int, end: int) -> int | None:
    """Where `mark` is found last between begin and end. Looked for in the file: a block is read once, to its end."""
    window = _WINDOW_BYTES
    while True:
        start = max(begin, end - window)
        found = _bytes(file, start, end).rfind(mark)
        if found >= 0:
            return start + found
        if start == begin:
            return None
        window *= 16


@dataclass(frozen=True)
class Lines:
    """A block's lines. start, end: of each one's text, without what it is wrapped in; feed: its line feed.

    kind: `code_of` the first two bytes. record: whether it begins like a record. wrapped: whether it was in a wrapper;
    None where none was looked for.
    """

    text: bytes
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    feed: NDArray[np.int64]
    kind: NDArray[np.uint16]
    record: NDArray[np.bool_]
    wrapped: NDArray[np.bool_] | None

    def line(self, index: int) -> bytes:
        """The raw line."""
        return self.text[int(self.start[index]) : int(self.end[index])]

    def of_kind(self, kinds: Collection[bytes]) -> NDArray[np.int64]:
        """Positions of the records of these kinds."""
        import numpy as np

        of_kind = np.logical_or.reduce([self.kind == code_of(kind) for kind in kinds])
        return np.flatnonzero(of_kind & self.record)

    def pick(self, rows: NDArray[np.int64]) -> pa.Buffer:
        """The lines at these positions, with their line feeds."""
        import numpy as np
        import pyarrow as pa

        if self.wrapped is not None:
            rows = np.add.outer(4 * rows, (1, 3)).ravel()
        picked = self._pieces.take(pa.array(rows))
        _, offsets, text = picked.buffers()
        return text.slice(0, int(np.frombuffer(offsets, np.int32)[rows.size]))

    def unwrapped(self) -> bytes:
        """The lines that were in no wrapper."""
        import numpy as np

        return self.text if self.wrapped is None else bytes(self.pick(np.flatnonzero(~self.wrapped)))

    @cached_property
    def _pieces(self) -> pa.Array:
        """The text in lines; where some may be wrapped, in four a line: what is before the text, it, behind it, the feed."""
        import numpy as np
        import pyarrow as pa

        each = 1 if self.wrapped is None else 4
        offsets = np.zeros(each * self.feed.size + 1, np.int32)
        offsets[each::each] = self.feed + 1
        if self.wrapped is not None:
            offsets[1::4], offsets[2::4], offsets[3::4] = self.start, self.end, self.feed
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.text)]
        return pa.Array.from_buffers(pa.binary(), offsets.size - 1, buffers)


def code_of(kind: bytes) -> int:
    """The first two bytes of a line as a number."""
    return int.from_bytes(kind, "little")


def split(block: bytes, kinds: Collection[bytes], wrapper: tuple[bytes, bytes] | None = None) -> Lines:
    """Find the lines of a block that ends with a line feed; records begin with one of `kinds`, a comma and a digit.

    wrapper: what lines may begin and end with around their text.
    """
    import numpy as np

    known = np.zeros(1 << 16, np.bool_)
    known[[code_of(kind) for kind in kinds]] = True
    data = np.frombuffer(block, np.uint8)
    # A piece at a time: that stays in the cache.
    feed = np.concatenate([np.flatnonzero(data[i : i + _PIECE] == 10) + i for i in range(0, data.size, _PIECE)])
    start, end = np.concatenate(([0], feed[:-1] + 1)), feed
    wrapped = None
    if wrapper is not None:
        head, tail = wrapper
        wrapped = (end - start >= len(head) + len(tail)) & _has(block, start, head) & _has(block, end - len(tail), tail)
        start, end = start + len(head) * wrapped, end - len(tail) * wrapped
    words, whole = _words(block, start)
    kind = words.astype(np.uint16)
    digit = words >> 24
    record = known[kind] & (words >> 16 & 0xFF == 44) & (digit >= 48) & (digit <= 57) & whole
    return Lines(block, start, end, feed, kind, record, wrapped)


def _words(block: bytes, at: NDArray[np.int64], size: int = 4) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The four (or eight) bytes at each position as a number, and whether the block has so many there."""
    import numpy as np

    last = max(0, len(block) - size)
    words = np.ndarray(last + 1, f"<u{size}", block.ljust(size), strides=(1,))
    return words[np.clip(at, 0, last)], at <= last


def _has(block: bytes, at: NDArray[np.int64], text: bytes) -> NDArray[np.bool_]:
    """Whether `text`, of four bytes or more, is at each position."""
    import numpy as np

    found = np.ones(at.size, np.bool_)
    size = 8 if len(text) >= 8 else 4
    for i in {*range(0, len(text) - size + 1, size), len(text) - size}:
        words, whole = _words(block, at + i, size)
        found &= whole & (words == int.from_bytes(text[i : i + size], "little"))
    return found
