"""Line-oriented text in blocks of whole lines, and which of a block's lines are records."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK_BYTES = 16 << 20
"""Size of a block. Memory is a small multiple of it."""
MAX_LINE_BYTES = 64 << 20
"""A line (or an object over several lines) longer than this is taken as it comes, cut."""


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
    """A block's lines. start, end: of each line, without line feed. record: whether it begins like a record."""

    text: bytes
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    record: NDArray[np.bool_]

    def line(self, index: int) -> bytes:
        """The raw line."""
        return self.text[int(self.start[index]) : int(self.end[index])]

    def records(self) -> bytes:
        """The block with the record lines alone."""
        import numpy as np

        others = np.flatnonzero(~self.record)
        pieces, at = [], 0
        for index in others.tolist():
            pieces.append(self.text[at : int(self.start[index])])
            at = int(self.end[index]) + 1
        return b"".join([*pieces, self.text[at:]]) if pieces else self.text


def split(block: bytes, kinds: Collection[bytes]) -> Lines:
    """Find the lines of a block that ends with a line feed; records begin with one of `kinds`, a comma and a digit."""
    import numpy as np

    known = np.zeros(1 << 16, np.bool_)
    known[[kind[0] << 8 | kind[1] for kind in kinds]] = True
    data = np.frombuffer(block + b"\n\n\n", np.uint8)
    end = np.flatnonzero(data[:-3] == 10)
    start = np.concatenate(([0], end[:-1] + 1))
    code = data[start].astype(np.uint16) << 8 | data[start + 1]
    digit = data[start + 3]
    return Lines(block, start, end, known[code] & (data[start + 2] == 44) & (digit >= 48) & (digit <= 57))
