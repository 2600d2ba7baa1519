"""`nvidia-smi topo -m`: the path between each GPU and each NIC of a node."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.model.capture import Account, Capture, Clock
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources._plain import batches, head

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "topology"
_HEADER = re.compile(r"^\s+(?:GPU\d+\s+)+", re.MULTILINE)
_PATH = re.compile(r"^(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS)$")
_LEGEND = re.compile(r"^\s*(NIC\d+)\s*:\s*(\S+)\s*$", re.MULTILINE)
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


def claims(path: Path) -> bool:
    """A text file with the matrix's header line and words."""
    text = _ESCAPES.sub("", head(path, 8192).decode("utf-8", "replace"))
    return (
        bool(_HEADER.search(text))
        and re.search(r"^GPU\d+\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS)\s", text, re.MULTILINE) is not None
    )


def inspect(path: Path, config: RunConfig) -> Capture:
    """Raises UnusableInput for a matrix without a row."""
    rows = list(_cells(path))
    if not rows:
        raise UnusableInput("a topology without a row", where=path)
    return Capture(
        path=path,
        kind=KIND,
        tool="nvidia-smi topo",
        clock=Clock.NONE,
        present=("topology",),
        bytes=path.stat().st_size,
    )


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """One row a pair, both ways."""
    yield from batches("topology", ({"node": node, **cell} for cell in _cells(capture.path)))


def _cells(path: Path) -> Iterator[dict[str, Any]]:
    text = _ESCAPES.sub("", head(path, 1 << 20).decode("utf-8", "replace"))
    legend = dict(_LEGEND.findall(text))
    columns: list[str] = []
    for line in text.splitlines():
        words = line.split()
        if _HEADER.match(line + " ") and not columns:
            columns = [word for word in words if re.fullmatch(r"GPU\d+|NIC\d+|(?:mlx|ib|roce|bnxt|efa|rdma)\w*", word)]
        elif columns and len(words) > 1 and (words[0] in columns):
            for other, word in zip(columns, words[1:], strict=False):
                if _PATH.match(word):
                    yield {"a": legend.get(words[0], words[0]), "b": legend.get(other, other), "path": word}
