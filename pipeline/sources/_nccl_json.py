"""JSON of NCCL's profiler plugins into tables: what its two sources share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pipeline.model import library
from pipeline.model.capture import Account, Capture
from pipeline.sources._json_lines import objects
from pipeline.sources._plain import conform

if TYPE_CHECKING:
    import pyarrow as pa


def run(
    capture: Capture,
    ranks: Mapping[int, int],
    node: str,
    account: Account,
    *,
    extract: str,
    queries: Sequence[str],
    outputs: Mapping[str, str],
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read a file's objects through `extract` (json_lines → narrow columns) a block at a time, then run `queries`.

    outputs: lake table → query. The narrow events are all that stays in memory.
    """
    import duckdb
    import pyarrow as pa

    connection = duckdb.connect(config={"threads": 1, "memory_limit": "768MB"})
    try:
        connection.execute("CREATE TEMP TABLE nccl_capture AS SELECT ?::VARCHAR AS node", [node])
        connection.register(
            "pid_ranks",
            pa.table({"pid": pa.array(ranks.keys(), pa.int64()), "rank": pa.array(ranks.values(), pa.int64())}),
        )
        first_line = 0
        created = False
        for texts in objects(capture.path, account):
            lines = pa.table({"line": pa.array(range(first_line, first_line + len(texts)), pa.int64()), "text": texts})
            first_line += len(texts)
            connection.register("json_lines", lines.cast(pa.schema([("line", pa.int64()), ("text", pa.string())])))
            connection.execute(library.sql(extract))
            for (bad,) in connection.execute(f"SELECT text FROM {extract} WHERE NOT good ORDER BY line").fetchall():
                account.bad_line(bad.encode())
            connection.execute(
                f"INSERT INTO nccl_events SELECT * EXCLUDE (text, good) FROM {extract} WHERE good"
                if created
                else f"CREATE TEMP TABLE nccl_events AS SELECT * EXCLUDE (text, good) FROM {extract} WHERE good"
            )
            created = True
        if created:
            for query in queries:
                connection.execute(library.sql(query))
            for table, query in outputs.items():
                yield from conform(table, connection.table(query).to_arrow_table())
    finally:
        connection.close()
    if account.bad_line_count:
        account.partial(f"{account.bad_line_count} lines could not be read")
