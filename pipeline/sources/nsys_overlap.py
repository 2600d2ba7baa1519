"""Operations of one CUDA stream that overlap: they can't, so the export's times are wrong there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_KEYS = ("process", "device", "context", "stream")


@dataclass
class StreamOverlap:
    """Counts operations that start before an earlier one of their stream has ended, batch by batch.

    A stream is (process, device, context, stream). Left out: zero-length and inverted operations, nodes of CUDA
    graphs (branches share a stream id) and copies of unified memory (stream and context 0). Exact where batches
    are in time order stream by stream, as exports are; a batch that goes back in time counts within itself only.
    """

    count: int = 0
    _last: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the next batch: columns process, device, context, stream, start_ns, end_ns, graph_id."""
        import numpy as np
        import pyarrow as pa

        start, end = _numbers(batch, "start_ns"), _numbers(batch, "end_ns")
        keys = [_numbers(batch, name) for name in _KEYS]
        ordered = (end > start) & ((keys[2] != 0) | (keys[3] != 0))
        if batch.column("graph_id").null_count < batch.num_rows:
            ordered &= np.asarray(batch.column("graph_id").is_null())
        if not ordered.all():
            start, end, keys = start[ordered], end[ordered], [key[ordered] for key in keys]
        if not len(start):
            return
        # Streams numbered 0, 1, ... by mixing one key after the other: no key can take another's place.
        stream = np.zeros(len(start), dtype=np.int64)
        for key in keys:
            codes = pa.array(key).dictionary_encode()
            if len(codes.dictionary) > 1:
                mixed = stream * len(codes.dictionary) + np.asarray(codes.indices)
                stream = np.asarray(pa.array(mixed).dictionary_encode().indices).astype(np.int64)
        for number in range(int(stream.max()) + 1):
            rows = np.flatnonzero(stream == number)
            self._stream(tuple(int(key[rows[0]]) for key in keys), start[rows], end[rows])

    def _stream(self, name: tuple[int, ...], start: Any, end: Any) -> None:
        import numpy as np

        if (start[1:] < start[:-1]).any():
            order = np.lexsort((end, start))
            start, end = start[order], end[order]
        latest = np.maximum.accumulate(end)
        self.count += int((start[1:] < latest[:-1]).sum())
        began, ended = self._last.get(name, (int(start[0]), int(start[0])))
        if began <= start[0] < ended:
            self.count += 1
        self._last[name] = (max(began, int(start[-1])), max(ended, int(latest[-1])))


def _numbers(batch: pa.RecordBatch, name: str) -> Any:
    import numpy as np

    column = batch.column(name)
    if column.null_count:
        column = column.fill_null(-1)
    return np.asarray(column)
