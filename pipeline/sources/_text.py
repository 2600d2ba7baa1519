"""Line-oriented text at speed: blocks of whole lines, and comma-separated integers of a block as arrays.

A recorder's output mixes record kinds with other text, so a general CSV reader would have to read every
field of every line as a string. Here the separators of a block are found once; then each kind's fields are
rectangles of positions, and eight digits at a time become a number (SWAR). See docs/performance.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    U64 = NDArray[np.uint64]
    I64 = NDArray[np.int64]
    Bools = NDArray[np.bool_]

BLOCK_BYTES = 2 << 20
"""Size of a block: its arrays stay within what the allocator reuses, without new pages for each."""
MAX_LINE_BYTES = 64 << 20
"""A line (or an object over several lines) longer than this is taken as it comes, cut."""

_PAD = b"\n" * 24  # so that the digits before any field's end can be read without a bounds check


def blocks(
    path: Path, *, size: int = BLOCK_BYTES, boundary: bytes = b"\n", lead: bytes = b""
) -> Iterator[tuple[bytes, bool]]:
    """Yield (block, cut): blocks that end behind a `boundary`; `cut` is true for a last line without line feed.

    lead: what a record starts with. With it, blocks end between two records, before the last one's start.
    """
    rest = b""
    with path.open("rb") as file:
        while data := file.read(size):
            data = rest + data
            end = data.rfind(boundary + lead) + len(boundary)
            if end < len(boundary):
                if len(data) < MAX_LINE_BYTES:
                    rest = data
                    continue
                end = len(data)
            rest = data[end:]
            if end:
                yield data[:end], False
    if rest:
        yield (rest, False) if rest.endswith(b"\n") else (rest, True)


@dataclass(frozen=True)
class Lines:
    """A block of lines as arrays. `data` is padded in front; positions count from the padded start.

    start, end: of each line, without line feed. first_comma: index into `seps` of each line's first separator.
    n_fields: comma-separated fields of each line.
    """

    data: NDArray[np.uint8]
    text: bytes
    start: I64
    end: I64
    seps: I64
    first_sep: I64
    n_fields: I64

    def line(self, index: int) -> bytes:
        """The raw line."""
        return self.text[int(self.start[index]) : int(self.end[index])]


def split(block: bytes) -> Lines:
    """Find lines and separators of a block of whole lines."""
    import numpy as np

    if not block.endswith(b"\n"):
        block += b"\n"
    text = _PAD + block
    data = np.frombuffer(text, np.uint8)
    seps = np.flatnonzero((data == 44) | (data == 10))[len(_PAD) :]
    line_sep = np.flatnonzero(data[seps] == 10)
    end = seps[line_sep]
    first_sep = np.concatenate(([0], line_sep[:-1] + 1))
    start = np.concatenate(([len(_PAD)], end[:-1] + 1))
    return Lines(data, text, start, end, seps, first_sep, line_sep - first_sep + 1)


def two_letters(lines: Lines) -> NDArray[np.uint16]:
    """Code of each line's first two bytes where a comma follows, else 0: `code(b"PO")` and alike."""
    import numpy as np

    last = lines.data.size - 1
    first = lines.data[lines.start].astype(np.uint16) << 8
    second = lines.data[np.minimum(lines.start + 1, last)]
    return np.where(lines.data[np.minimum(lines.start + 2, last)] == 44, first | second, 0).astype(np.uint16)


def code(kind: bytes) -> int:
    """Number that `two_letters` gives a line of this kind."""
    return kind[0] << 8 | kind[1]


def field(lines: Lines, rows: I64, number: int) -> tuple[I64, I64]:
    """Start and end of field `number` (from 0) of the lines `rows`, which all have that field."""
    sep = lines.first_sep[rows] + number
    start = lines.start[rows] if number == 0 else lines.seps[sep - 1] + 1
    return start, lines.seps[sep]


def integers(lines: Lines, start: I64, end: I64) -> tuple[U64, Bools]:
    """Decimal integers between positions: (value modulo 2^64, valid).

    `-5` is 2^64 - 5, which is also how recorders print it. Not valid: no digits, other characters, a
    value beyond 64 bits.
    """
    import numpy as np

    if not start.size:
        return np.zeros(0, np.uint64), np.zeros(0, np.bool_)
    data = lines.data
    negative = data[start] == 45
    width = end - start - negative
    valid = (width > 0) & (width <= 20)
    words = np.ndarray((data.size - 7,), "<u8", buffer=data, strides=(1,))
    value = np.zeros(start.size, np.uint64)
    for word in range(int((min(int(width.max()), 20) + 7) // 8)):
        digits, good = _eight_digits(words[end - 8 * (word + 1)], np.clip(width - 8 * word, 0, 8))
        valid &= good
        if word == 2:
            # 18 446 744 073 709 551 615 is the largest: its upper four digits are 1844.
            valid &= (digits < 1844) | ((digits == 1844) & (value <= 6_744_073_709_551_615))
        value += digits * np.uint64(10 ** (8 * word))
    if negative.any():
        value = np.where(negative, np.uint64(0) - value, value)
    return value, valid


def _eight_digits(word: U64, width: I64) -> tuple[U64, Bools]:
    """The last `width` (0 to 8) characters of little-endian words as numbers, and whether all are digits."""
    import numpy as np

    keep = np.array(
        [0, *((0xFFFF_FFFF_FFFF_FFFF << (64 - 8 * w)) & 0xFFFF_FFFF_FFFF_FFFF for w in range(1, 9))], np.uint64
    )
    digits = (word ^ np.uint64(0x3030_3030_3030_3030)) & keep[width]
    # Adding 0x76 sets the top bit of a byte above 9; a byte that had it set may carry, but is flagged itself.
    wrong = ((digits + np.uint64(0x7676_7676_7676_7676)) | digits) & np.uint64(0x8080_8080_8080_8080)
    pairs = digits * np.uint64(10) + (digits >> np.uint64(8))
    quads = np.uint64(0x0000_00FF_0000_00FF)
    high = (pairs & quads) * np.uint64(0x000F_4240_0000_0064)
    low = ((pairs >> np.uint64(16)) & quads) * np.uint64(0x0000_2710_0000_0001)
    return (high + low) >> np.uint64(32), wrong == 0
