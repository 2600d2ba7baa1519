"""From raw records of probes to rows: the part that every tool's output shares (queries/sources/ebpf/).

Records come in blocks, in nearly the order of time. Calls and thread states that a block leaves open are carried
into the next one, so memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipeline.model import library
from pipeline.model.schema import TABLES
from pipeline.sources._plain import conform

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_REJECTS = "SELECT any_value(csv_line) FROM reject_errors GROUP BY line ORDER BY line"
SLACK_NS = 250_000_000
"""How late a record may come: each core has its own buffer, which its reader empties at least every 100 ms."""

_INTEGER, _UNSIGNED, _TEXT, _FLAG = "BIGINT", "UBIGINT", "VARCHAR", "BOOLEAN"
INPUTS: dict[str, dict[str, str]] = {
    "posts_in": {
        "enter_ns": _INTEGER,
        "exit_ns": _INTEGER,
        "pid": _INTEGER,
        "tid": _INTEGER,
        "cpu": _INTEGER,
        "qp": _INTEGER,
        "wr_id": _UNSIGNED,
        "opcode": _INTEGER,
        "flags": _INTEGER,
        "n_wr": _INTEGER,
        "bytes": _INTEGER,
        "ret": _INTEGER,
    },
    "calls_in": {
        "kind": _TEXT,
        "at_ns": _INTEGER,
        "line": _INTEGER,
        "pid": _INTEGER,
        "tid": _INTEGER,
        "cpu": _INTEGER,
        "qp": _INTEGER,
        "wr_id": _UNSIGNED,
        "opcode": _INTEGER,
        "flags": _INTEGER,
        "n_wr": _INTEGER,
        "bytes": _INTEGER,
        "ret": _INTEGER,
    },
    "polls_in": {
        "at_ns": _INTEGER,
        "pid": _INTEGER,
        "tid": _INTEGER,
        "qp": _INTEGER,
        "wr_id": _UNSIGNED,
        "status": _INTEGER,
        "opcode": _INTEGER,
    },
    "switches_in": {
        "kind": _TEXT,
        "at_ns": _INTEGER,
        "line": _INTEGER,
        "tid": _INTEGER,
        "pid": _INTEGER,
        "name": _TEXT,
        "cpu": _INTEGER,
        "other": _INTEGER,
        "class": _TEXT,
        "fresh": _FLAG,
    },
}
"""Raw records that an `Assembler` takes, a table a kind.

calls_in: kind is enter, doorbell or exit of one post_send. switches_in: kind is in, out or wake; other is the thread
that ran before (in) or the waker (wake); class is runnable, blocked or dead (out). line: order in the file.
"""

_MACROS = ("_ibv_wr_opcode", "_ibv_wc_opcode", "_ebpf_int")
_CSV = {
    "posts_in": "_ebpf_csv_posts",
    "polls_in": "_ebpf_csv_polls",
    "calls_in": "_ebpf_csv_calls",
    "switches_in": "_ebpf_csv_switches",
}
_STEPS = (
    "_ebpf_threads",
    "_ebpf_calls",
    "_ebpf_calls_carry",
    "_ebpf_posts",
    "_ebpf_completions",
    "_ebpf_thread_states",
)
_OUTPUTS = {
    "rdma_posts": "_ebpf_posts",
    "rdma_completions": "_ebpf_completions",
    "thread_states": "_ebpf_thread_states",
}


def empty_inputs() -> dict[str, pa.Table]:
    """Every input table without a row."""
    import pyarrow as pa

    return {
        name: pa.schema([pa.field(c, _arrow_type(t)) for c, t in columns.items()]).empty_table()
        for name, columns in INPUTS.items()
    }


def _arrow_type(name: str) -> Any:
    import pyarrow as pa

    return {_INTEGER: pa.int64(), _UNSIGNED: pa.uint64(), _TEXT: pa.string(), _FLAG: pa.bool_()}[name]


def input_table(name: str, columns: Mapping[str, Any], rows: int) -> pa.Table:
    """An input table of `rows` rows from arrays or constants; what is missing is NULL."""
    import numpy as np
    import pyarrow as pa

    arrays = []
    for column, kind in INPUTS[name].items():
        value = columns.get(column)
        if isinstance(value, np.ndarray | list | pa.Array | pa.ChunkedArray):
            arrays.append(pa.array(value, _arrow_type(kind)) if not isinstance(value, pa.ChunkedArray) else value)
        elif value is None:
            arrays.append(pa.nulls(rows, _arrow_type(kind)))
        else:
            arrays.append(pa.repeat(pa.scalar(value, _arrow_type(kind)), rows))
    return pa.table(arrays, names=list(INPUTS[name]))


def rows_of(table: str, columns: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(table, batch) of a lake table from columns; missing columns are NULL. Nothing where there is no row."""
    import pyarrow as pa

    count = len(next(iter(columns.values()), ()))
    if count:
        schema = TABLES[table].arrow_schema()
        arrays = [pa.array(columns.get(f.name, [None] * count), f.type) for f in schema]
        yield table, pa.record_batch(arrays, schema=schema)


@dataclass(frozen=True)
class Fields:
    """What a block's record lines were: times in the file's order (ns, of good records), and lines that are none."""

    times: NDArray[np.int64]
    bad_lines: list[str]


class Assembler:
    """Turns blocks of raw records into rows of rdma_posts, rdma_completions and thread_states.

    ranks: pid → rank. probe_cost_ns: taken out of each call, probe_exit_ns of it (all where not known) before
    its return and the rest after its entry. all_threads: the tool recorded every switch of
    every thread that it names. bad_lines: record lines of no known layout, for the reader to take.
    """

    def __init__(
        self,
        *,
        node: str,
        ranks: Mapping[int, int],
        source: str,
        probe_cost_ns: int | None,
        probe_exit_ns: int | None = None,
        all_threads: bool,
    ) -> None:
        import duckdb
        import pyarrow as pa

        cost = probe_cost_ns or 0
        exit_part = cost if probe_exit_ns is None else min(probe_exit_ns, cost)
        self.late_switches = 0
        self.bad_lines: list[str] = []
        self._qps: dict[tuple[int, int], str] = {}
        self._empty = empty_inputs()
        self._watermark_ns: int | None = None
        self._new: dict[str, str] = {}
        self._line = 0
        self._lines = 0
        # One thread: with more, rows of equal times come in another order each time, and a block is too small to gain.
        self.connection = duckdb.connect(
            config={"threads": 1, "memory_limit": "768MB", "enable_external_file_cache": False}
        )
        self.connection.execute(
            "CREATE TEMP TABLE ebpf_capture AS SELECT ?::VARCHAR AS node, ?::VARCHAR AS source, "
            "?::BIGINT AS probe_entry_ns, ?::BIGINT AS probe_exit_ns, ?::BOOLEAN AS all_threads",
            [node, source, cost - exit_part, exit_part, all_threads],
        )
        pid_ranks = pa.table({"pid": pa.array(ranks.keys(), pa.int64()), "rank": pa.array(ranks.values(), pa.int64())})
        self.connection.register("pid_ranks", pid_ranks)
        for macro in _MACROS:
            self.connection.execute(library.sql(macro))
        self._carry = {name: self._empty[name] for name in ("calls_in", "switches_in")}
        self._threads = pa.schema([("tid", pa.int64()), ("pid", pa.int64()), ("posts", pa.bool_())]).empty_table()

    def close(self) -> None:
        self.connection.close()

    def queue_pair(self, pid: int, qp: int, nic: str) -> None:
        """Rows from now on know that queue pair `qp` of `pid` is on device `nic`."""
        self._qps[pid, qp] = nic

    def read_csv(self, path: str) -> Fields:
        """Take record lines of `rdma-ebpf-csv-1` and its forerunners as the next block's records."""
        connection = self.connection
        connection.execute("SET VARIABLE ebpf_block_path = ?", [path])
        connection.execute("SET VARIABLE ebpf_line = ?", [self._line])
        connection.execute(library.sql("_ebpf_fields"))
        if self._new != _CSV:
            for query in (*_CSV.values(), "_ebpf_bad_rows"):
                connection.execute(library.sql(query))
        self._new = _CSV
        bad = [str(line) for (line,) in connection.execute(_REJECTS).fetchall()]
        connection.execute("DROP TABLE IF EXISTS reject_errors")
        connection.execute("DROP TABLE IF EXISTS reject_scans")
        times = connection.execute(
            "SELECT CASE c0 WHEN 'PO' THEN coalesce(c2, c1) ELSE c1 END AS at_ns FROM _ebpf_fields"
        ).fetchnumpy()["at_ns"]
        self._lines = len(times)
        self._line += self._lines
        return Fields(times[times > 0], bad)

    def take(self, inputs: Mapping[str, pa.Table]) -> None:
        """Take tables of records (INPUTS) as the next block's."""
        self.nothing_new()
        for name, table in inputs.items():
            self.connection.register(self._new[name], table)

    def nothing_new(self) -> None:
        """The next block has no records of its own."""
        self._new = {name: f"new_{name}" for name in INPUTS}
        for name, relation in self._new.items():
            self.connection.register(relation, self._empty[name])

    def block(self, *, last_ns: int, final: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows that this block completes. last_ns: latest time so far; final: nothing follows."""
        import pyarrow as pa

        connection = self.connection
        watermark_ns = last_ns if final else last_ns - SLACK_NS
        switches = _like(self._empty["switches_in"], self._new_table("switches_in"))
        # libbpf's switch is one line and two rows, of which one names a process.
        known = switches["pid"].null_count
        switches = self._in_time(switches)
        switches = pa.concat_tables([self._carry["switches_in"], switches])
        calls = _like(self._empty["calls_in"], self._new_table("calls_in"))
        known += calls.num_rows
        calls = pa.concat_tables([self._carry["calls_in"], calls])
        self._watermark_ns = watermark_ns
        posts: pa.Table | None = None
        if calls.num_rows:
            # Doorbells come as records of their own: let the whole call be found from its parts.
            whole = self._new_table("posts_in")
            known += whole.num_rows
            calls = pa.concat_tables([calls, *_as_calls(whole)])
            posts = self._empty["posts_in"]
        switches_sorted, switches_carry = _in_thread_order(switches, watermark_ns)
        for name in ("posts_in", "polls_in"):
            if name == "posts_in" and posts is not None:
                connection.register(name, posts)
            else:
                connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM {self._new[name]}")
        for name, table in {
            "calls_in": calls,
            "switches_in": switches,
            "switches_sorted": switches_sorted,
            "threads_before": self._threads,
            "known_qps": self._known_qps(),
        }.items():
            connection.register(name, table)
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE ebpf_block AS "
            "SELECT ?::BIGINT AS watermark_ns, ?::BIGINT AS last_ns, ?::BOOLEAN AS final",
            [watermark_ns, last_ns, final],
        )
        for step in _STEPS:
            connection.execute(library.sql(step))
        self._threads = connection.table("_ebpf_threads").to_arrow_table()
        self._carry = {
            "calls_in": _like(self._empty["calls_in"], connection.table("_ebpf_calls_carry").to_arrow_table()),
            "switches_in": switches_carry,
        }
        for table_name, relation in _OUTPUTS.items():
            found = connection.table(relation).to_arrow_table()
            if table_name == "rdma_completions" or (table_name == "rdma_posts" and posts is None):
                known += found.num_rows
            yield from conform(table_name, found)
        if self._new == _CSV and known != self._lines:
            bad = connection.execute("FROM _ebpf_bad_rows").fetchall()
            self.bad_lines += [str(line) for (line,) in bad]

    def _new_table(self, name: str) -> pa.Table:
        return self.connection.table(self._new[name]).to_arrow_table()

    def _in_time(self, switches: pa.Table) -> pa.Table:
        """Without those that come too late: what they would change is written already."""
        import pyarrow.compute as pc

        if self._watermark_ns is None or not switches.num_rows:
            return switches
        due = switches.filter(pc.greater(switches["at_ns"], self._watermark_ns))
        self.late_switches += switches.num_rows - due.num_rows
        return due

    def _known_qps(self) -> pa.Table:
        import pyarrow as pa

        return pa.table(
            {
                "pid": pa.array([pid for pid, _ in self._qps], pa.int64()),
                "qp": pa.array([qp for _, qp in self._qps], pa.int64()),
                "nic": pa.array(self._qps.values(), pa.string()),
            }
        )


def _as_calls(posts: pa.Table) -> Iterator[pa.Table]:
    """Posts in one record as entry and return."""
    import numpy as np

    names = [name for name in INPUTS["calls_in"] if name in INPUTS["posts_in"]]
    for kind, time in (("enter", "enter_ns"), ("exit", "exit_ns")):
        columns = {name: posts[name] for name in names}
        line = np.arange(posts.num_rows)
        yield input_table("calls_in", columns | {"kind": kind, "at_ns": posts[time], "line": line}, posts.num_rows)


def _in_thread_order(switches: pa.Table, watermark_ns: int) -> tuple[pa.Table, pa.Table]:
    """(records up to the watermark in order of thread and time, records that the next block needs).

    The next block needs what is later, and of each thread everything from the switch before the last one on: the
    slice that begins at the last one is still open, and what it is depends on wake-ups just before it.
    """
    import numpy as np
    import pyarrow as pa

    if not switches.num_rows:
        return switches, switches
    at = switches["at_ns"].to_numpy()
    tid = switches["tid"].to_numpy()
    # Stable, and rows come in the order of the file.
    order = np.lexsort((at, tid))
    at, tid = at[order], tid[order]
    is_switch = switches["kind"].to_numpy(zero_copy_only=False)[order] != "wake"
    due = at <= watermark_ns
    rows = np.arange(at.size)
    new_thread = np.concatenate(([True], tid[1:] != tid[:-1]))
    thread = np.cumsum(new_thread) - 1
    first = np.flatnonzero(new_thread)
    last_switch = np.maximum.reduceat(np.where(is_switch & due, rows, -1), first)
    before = np.maximum.reduceat(np.where(is_switch & due & (rows < last_switch[thread]), rows, -1), first)
    since = np.where(before >= 0, before, np.maximum(last_switch, 0))
    keep = ~due | (rows >= since[thread])
    carried = switches.take(pa.array(order[keep]))
    fresh = pa.array(carried["fresh"].to_numpy(zero_copy_only=False) & ~due[keep])
    carried = carried.set_column(carried.column_names.index("fresh"), "fresh", fresh)
    return switches.take(pa.array(order[due])), carried


def _like(empty: pa.Table, table: pa.Table) -> pa.Table:
    return table.select(empty.column_names).cast(empty.schema)
