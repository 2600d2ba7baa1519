"""Operations of one CUDA stream that overlap: they can't, so the export's times are wrong there."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class StreamOverlap:
    """Counts operations that start before an earlier one of their stream has ended, batch by batch.

    A stream is (process, device, context, stream). Left out: zero-length and inverted operations, nodes of CUDA
    graphs (branches share a stream id) and copies of unified memory (stream and context 0). Exact where batches
    are in time order stream by stream, as exports are; a batch that goes back in time counts within itself only.
    """

    count: int = 0
    _last: dict[tuple[int, int, int, int], tuple[int, int]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next batch: columns process, device, context, stream, start_ns, end_ns, graph_id."""
        import numpy as np

        def numbers(name: str) -> np.ndarray:
            return np.asarray(batch.column(name).fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)

        start, end = numbers("start_ns"), numbers("end_ns")
        keys = [numbers(name) for name in ("process", "device", "context", "stream")]
        ordered = (end > start) & (numbers("graph_id") < 0) & ((keys[2] != 0) | (keys[3] != 0))
        start, end = start[ordered], end[ordered]
        keys = [key[ordered] for key in keys]
        if not len(start):
            return
        order = np.lexsort((end, start, *reversed(keys)))
        start, end = start[order], end[order]
        keys = [key[order] for key in keys]
        changed = np.zeros(len(start), dtype=bool)
        changed[0] = True
        for key in keys:
            changed[1:] |= key[1:] != key[:-1]
        bounds = [*np.flatnonzero(changed).tolist(), len(start)]
        for first, stop in pairwise(bounds):
            name = tuple(int(key[first]) for key in keys)
            latest = np.maximum.accumulate(end[first:stop])
            self.count += int((start[first + 1 : stop] < latest[:-1]).sum())
            began, ended = self._last.get(name, (int(start[first]), int(start[first])))  # type: ignore[arg-type]
            if start[first] >= began and start[first] < ended:
                self.count += 1
            self._last[name] = (max(began, int(start[stop - 1])), max(ended, int(latest[-1])))  # type: ignore[index]
