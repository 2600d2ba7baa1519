"""Counter samples: CSV with the header `node,device,port,link_layer,counter,at_ns,value`, at_ns CLOCK_REALTIME."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.model import library
from pipeline.model.capture import Account, Capture, Clock
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources._plain import conform, head

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "counters_csv"
COLUMNS = ("node", "device", "port", "link_layer", "counter", "at_ns", "value")
BATCH_ROWS = 200_000


def claims(path: Path) -> bool:
    """A text file whose first line is the header, whatever the order of its columns."""
    first = head(path, 4096).partition(b"\n")[0].decode("utf-8", "replace")
    return set(COLUMNS) <= {name.strip().strip('"') for name in first.lstrip("\ufeff").split(",")}


def inspect(path: Path, config: RunConfig) -> Capture:
    """Node and size. Raises UnusableInput for a header without a sample."""
    lines = head(path).splitlines()
    if len(lines) < 2:
        raise UnusableInput("a header without a sample", where=path, todo="did the sampler run?")
    names = [name.strip().strip(b'"') for name in lines[0].removeprefix(b"\xef\xbb\xbf").split(b",")]
    fields = lines[1].split(b",")
    at = names.index(b"node")
    host = fields[at].strip().decode("utf-8", "replace") if len(fields) > at else ""
    return Capture(
        path=path,
        kind=KIND,
        tool="mfuloss collect counters",
        host=host or None,
        clock=Clock.REALTIME,
        present=("counters",),
        bytes=path.stat().st_size,
    )


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Samples. A line's own node stands; a sample without device, counter, time or value is a bad line."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1, "memory_limit": "512MB"})
    try:
        connection.execute("SET VARIABLE counters_path = ?", [str(capture.path)])
        connection.execute("SET VARIABLE counters_node = ?", [node])
        for name in ("_counter_lines", "_counter_samples", "_counter_bad_lines"):
            connection.execute(library.sql(name))
        for (line,) in connection.table("_counter_bad_lines").fetchall():
            account.bad_line(line.encode())
        reader = connection.table("_counter_samples").to_arrow_reader(BATCH_ROWS)
        import pyarrow as pa

        for batch in reader:
            yield from conform("counters", pa.Table.from_batches([batch]))
    finally:
        connection.close()
    if account.bad_line_count:
        account.partial(f"{account.bad_line_count} lines could not be read")
