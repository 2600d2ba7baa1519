"""Attribution of a message's phases, where they are given one by one: by a simulator, a replay, or by hand.

No input format shows every phase of a message apart (notification, scheduling, work request, doorbell, fetch). This
writes them down as the events that the sources would have recorded, and asks the same queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.attribution import database, engine
from pipeline.attribution.work import WORK_TABLES
from pipeline.model.run import RunConfig, parse
from pipeline.model.schema import TABLES

if TYPE_CHECKING:
    import duckdb

Span = tuple[int, int]
"""[start, end) in ns."""


@dataclass(frozen=True)
class Message:
    """A message's phases; times in ns on one clock, size in bytes.

    notify: the GPU's notification of the proxy is open. schedule: the proxy thread is runnable and does not run.
    post_ns: post_send is entered and builds the work request; doorbell_ns: it rings the doorbell (None: not told
    apart); exit_ns: it returns. complete_ns: the completion is seen (None: never).
    """

    bytes: int
    post_ns: int
    exit_ns: int
    complete_ns: int | None
    doorbell_ns: int | None = None
    schedule: Span | None = None
    notify: Span | None = None
    queue_pair: int = 1
    nic: str = "nic0"


def attribute_phases(
    messages: Sequence[Message],
    *,
    window: Span,
    step: Span | None = None,
    compute: Sequence[Span] = (),
    beta_bytes_per_s: int | None,
    rtt0_ns: int | None = None,
    fetch_ns: int | None = None,
) -> dict[str, int]:
    """Attributed ns by category (leaves of ctl_cpu under their own names) of one step with one operation.

    window: the communication kernel is resident. compute: other kernels are. step: the step, by default what these
    span together. One proxy thread posts all messages. Categories without time are left out.
    """
    spans = [window, *compute]
    step = step or (min(start for start, _ in spans), max(end for _, end in spans))
    network = {"beta_bytes_per_s": beta_bytes_per_s, "rtt0_ns": rtt0_ns, "fetch_ns": fetch_ns}
    config = parse({"network": {key: value for key, value in network.items() if value is not None}})
    connection = _connection(_tables(messages, window, step, compute), config)
    try:
        database.run_queries(connection, (*engine.LOCAL, *engine.ACROSS, *engine.ACCOUNT))
        rows = connection.execute(
            "SELECT category, sum(attributed_ns)::BIGINT FROM breakdown GROUP BY category HAVING sum(attributed_ns) > 0"
        ).fetchall()
    finally:
        connection.close()
    return dict(rows)


def _tables(
    messages: Sequence[Message], window: Span, step: Span, compute: Sequence[Span]
) -> dict[str, list[dict[str, Any]]]:
    proxy = {"node": "n0", "pid": 1, "tid": 1}
    waiting = sorted(message.schedule for message in messages if message.schedule)
    # The thread runs whenever it is not waiting for a core.
    edges = [window[0], *(instant for span in waiting for instant in span), window[1]]
    running = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if b > a]
    post = {**proxy, "rank": 0, "opcode": "RDMA_WRITE", "n_wr": 1, "signaled": True, "ret": 0}
    return {
        "ranks": [{"rank": 0, "node": "n0", "pid": 1}],
        "nvtx": [{"rank": 0, "tid": 2, "kind": "push_pop", "start_ns": step[0], "end_ns": step[1], "text": "step_0"}],
        "gpu_ops": [
            {
                "rank": 0,
                "device": 0,
                "context": 1,
                "stream": stream,
                "op_class": kind,
                "name": kind,
                "start_ns": start,
                "end_ns": end,
            }
            for stream, kind, (start, end) in [(1, "comm", window), *((2, "compute", span) for span in compute)]
        ],
        "thread_states": [
            {**proxy, "start_ns": start, "end_ns": end, "state": state}
            for state, spans in (("running", running), ("runnable", waiting))
            for start, end in spans
        ],
        "comm_phases": [
            {"rank": 0, "phase": "SendGPUWait", "start_ns": message.notify[0], "end_ns": message.notify[1]}
            for message in messages
            if message.notify
        ],
        "rdma_posts": [
            {
                **post,
                "nic": message.nic,
                "qp": message.queue_pair,
                "wr_id": number,
                "bytes": message.bytes,
                "enter_ns": message.post_ns,
                "exit_ns": message.exit_ns,
                "doorbell_ns": message.doorbell_ns,
            }
            for number, message in enumerate(messages)
        ],
        "rdma_completions": [
            {
                **proxy,
                "rank": 0,
                "nic": message.nic,
                "qp": message.queue_pair,
                "wr_id": number,
                "status": 0,
                "seen_ns": message.complete_ns,
            }
            for number, message in enumerate(messages)
            if message.complete_ns is not None
        ],
    }


def _connection(tables: dict[str, list[dict[str, Any]]], config: RunConfig) -> duckdb.DuckDBPyConnection:
    """All tables of a run of one rank in memory, and the parameters of the queries."""
    import pyarrow as pa

    from pipeline.lake.layout import RunDir, open_connection

    connection = open_connection()
    for table in TABLES.values():
        if table.derived:
            continue
        schema = table.arrow_schema()
        rows = [{**dict.fromkeys(schema.names), **row} for row in tables.get(table.name, ())]
        connection.register("rows_given", pa.Table.from_pylist(rows, schema=schema))
        connection.execute(f"CREATE TEMP TABLE {table.name} AS SELECT * FROM rows_given")
        connection.unregister("rows_given")
    connection.execute("CREATE TEMP TABLE this_rank AS SELECT rank, node, pid, nic FROM ranks")
    database.parameters(connection, RunDir(Path("no files")), config)
    made = {*engine.LOCAL, *engine.ACROSS, *engine.ACCOUNT}
    for name in (*WORK_TABLES, *(table.name for table in TABLES.values() if table.derived)):
        if name not in made:
            database.ensure(connection, name)
    return connection
