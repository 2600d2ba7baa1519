"""From raw records of probes to rows: the part that every tool's output shares (queries/sources/ebpf/).

Records come in blocks, in nearly the order of time. Calls and thread states that a block leaves open are carried
into the next one, so memory does not grow with the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from pipeline.model import library
from pipeline.model.schema import TABLES

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

SLACK_NS = 250_000_000
"""How late a record may come: each core has its own buffer, which its reader empties at least every 100 ms."""

KINDS = ("in", "out", "wake")
CLASSES = ("runnable", "blocked", "dead")

_INTEGER, _UNSIGNED, _TEXT, _FLAG = "BIGINT", "UBIGINT", "VARCHAR", "BOOLEAN"
_NAMES: dict[tuple[str, str], tuple[str, ...]] = {("switches_in", "kind"): KINDS, ("switches_in", "class"): CLASSES}
"""Columns whose few values are stored once."""
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
        "line": _INTEGER,
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
        "line": _INTEGER,
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
_TABLES = ("_ebpf_calls", "_ebpf_calls_carry")
_VIEWS = {
    "rdma_posts": "_ebpf_posts",
    "rdma_completions": "_ebpf_completions",
    "thread_states": "_ebpf_thread_states",
}
"""Where a lake table's rows come from."""
_OPCODES = {
    "rdma_posts": "SELECT _ibv_wr_opcode(?::BIGINT)",
    "rdma_completions": "SELECT _ibv_wc_opcode(?::BIGINT)",
}


def empty_inputs() -> dict[str, pa.Table]:
    """Every input table without a row."""
    return {name: _schema(name).empty_table() for name in INPUTS}


@cache
def _schema(name: str) -> pa.Schema:
    import pyarrow as pa

    kinds = {_INTEGER: pa.int64(), _UNSIGNED: pa.uint64(), _TEXT: pa.string(), _FLAG: pa.bool_()}
    names = pa.dictionary(pa.int8(), pa.string())
    return pa.schema([(c, names if (name, c) in _NAMES else kinds[kind]) for c, kind in INPUTS[name].items()])


def pick(names: Sequence[str], codes: NDArray[Any], null: NDArray[np.bool_] | None = None) -> pa.Array:
    """names[codes], each name stored once."""
    import numpy as np
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int8), mask=null), pa.array(names))


def whole(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece; not copied where it is one."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def input_table(name: str, columns: Mapping[str, Any], rows: int) -> pa.Table:
    """An input table of `rows` rows from arrays or constants; what is missing is NULL."""
    import numpy as np
    import pyarrow as pa

    arrays = []
    for field in _schema(name):
        value = columns.get(field.name)
        if isinstance(value, pa.Array | pa.ChunkedArray):
            arrays.append(value)
        elif isinstance(value, np.ndarray | list):
            arrays.append(pa.array(value, field.type))
        elif value is None:
            arrays.append(pa.nulls(rows, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(value, field.type), rows))
    return pa.table(arrays, schema=_schema(name))


def like(name: str, table: pa.Table) -> pa.Table:
    """A table with the columns of the input table `name`, in its types."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = []
    for field in _schema(name):
        column = table[field.name]
        if (name, field.name) in _NAMES and not pa.types.is_dictionary(column.type):
            names = _NAMES[name, field.name]
            column = pc.index_in(column.combine_chunks(), pa.array(names))
            column = pa.DictionaryArray.from_arrays(column.cast(pa.int8()), pa.array(names))
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=_schema(name))


def rows_of(table: str, columns: Mapping[str, Sequence[Any]]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """(table, batch) of a lake table from columns; missing columns are NULL. Nothing where there is no row."""
    import pyarrow as pa

    count = len(next(iter(columns.values()), ()))
    if count:
        schema = TABLES[table].arrow_schema()
        arrays = [pa.array(columns.get(f.name, [None] * count), f.type) for f in schema]
        yield table, pa.record_batch(arrays, schema=schema)


class Assembler:
    """Turns blocks of raw records into rows of rdma_posts, rdma_completions and thread_states.

    ranks: pid → rank. probe_cost_ns: taken out of each call, probe_exit_ns of it (all where not known) before
    its return and the rest after its entry. all_threads: the tool recorded every switch of every thread that it
    names.
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
        self._constants = {"node": node, "source": source}
        self._qps: dict[tuple[int, int], int] = {}
        self._nics: dict[str, int] = {}
        self._empty = empty_inputs()
        self._new: Mapping[str, pa.Table] = self._empty
        self._inputs: Mapping[str, pa.Table] = {}
        self._opcode_names: dict[tuple[str, int | None], str | None] = {}
        self._watermark_ns: int | None = None
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
        self._calls = self._empty["calls_in"]
        self._open = self._later = self._empty["switches_in"]
        self._threads = pa.schema([("tid", pa.int64()), ("pid", pa.int64()), ("posts", pa.bool_())]).empty_table()
        self._made = self._has_calls = False

    def close(self) -> None:
        self.connection.close()

    def queue_pair(self, pid: int, qp: int, nic: str) -> None:
        """Rows from now on know that queue pair `qp` of `pid` is on device `nic`."""
        self._qps[pid, qp] = self._nics.setdefault(nic, len(self._nics))

    def take(self, inputs: Mapping[str, pa.Table]) -> None:
        """Take tables of records (INPUTS) as the next block's; a kind that is missing has none."""
        self._new = {name: like(name, inputs[name]) if name in inputs else empty for name, empty in self._empty.items()}

    def block(self, *, last_ns: int, final: bool = False) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows that this block completes. last_ns: latest time so far; final: nothing follows."""
        import pyarrow as pa

        connection = self.connection
        watermark_ns = last_ns if final else last_ns - SLACK_NS
        new = self._in_time(self._new["switches_in"])
        switches = pa.concat_tables([self._open, self._later, new])
        self._watermark_ns = watermark_ns
        due, self._later = _parted(self._later, new, watermark_ns)
        due, self._open = _in_thread_order(pa.concat_tables([self._open, due]))
        posts, calls = self._new["posts_in"], pa.concat_tables([self._calls, self._new["calls_in"]])
        if calls.num_rows:
            # Doorbells come as records of their own: let the whole call be found from its parts.
            calls, posts = pa.concat_tables([calls, *_as_calls(posts)]), self._empty["posts_in"]
        inputs = {
            "posts_in": posts,
            "calls_in": calls,
            "polls_in": self._new["polls_in"],
            "switches_in": switches,
            "switches_sorted": due,
            "threads_before": self._threads,
            "known_qps": self._known_qps(),
        }
        for name, table in inputs.items():
            if self._inputs.get(name) is not table:
                connection.register(name, table)
        self._inputs = inputs
        connection.execute(
            "CREATE OR REPLACE TEMP TABLE ebpf_block AS "
            "SELECT ?::BIGINT AS watermark_ns, ?::BIGINT AS last_ns, ?::BOOLEAN AS final",
            [watermark_ns, last_ns, final],
        )
        connection.execute(library.sql("_ebpf_threads"))
        self._threads = connection.table("_ebpf_threads").to_arrow_table()
        if calls.num_rows or self._has_calls or not self._made:
            self._has_calls = calls.num_rows > 0
            for step in _TABLES:
                connection.execute(library.sql(step))
            self._calls = like("calls_in", connection.table("_ebpf_calls_carry").to_arrow_table())
        if not self._made:
            for view in _VIEWS.values():
                connection.execute(library.sql(view))
            self._made = True
        for table_name, view in _VIEWS.items():
            found = connection.table(view).to_arrow_table()
            if found.num_rows:
                yield table_name, self._named(table_name, found)
        self._new = self._empty

    def _named(self, table: str, found: pa.Table) -> pa.RecordBatch:
        """A query's rows in the lake table's columns. Text comes as dictionaries: a row costs a number, not a copy."""
        import numpy as np
        import pyarrow as pa

        columns = {name: whole(found[name]) for name in found.column_names}
        for name, text in self._constants.items():
            columns[name] = pa.DictionaryArray.from_arrays(np.zeros(found.num_rows, np.int32), pa.array([text]))
        if "nic" in columns:
            nics = pa.array(self._nics, pa.string())
            columns["nic"] = pa.DictionaryArray.from_arrays(columns["nic"].cast(pa.int32()), nics)
        if "opcode" in columns:
            encoded = columns["opcode"].dictionary_encode()
            names = [self._opcode(table, number) for number in encoded.dictionary.to_pylist()]
            columns["opcode"] = pa.DictionaryArray.from_arrays(encoded.indices, pa.array(names, pa.string()))
        return pa.record_batch(
            [
                columns[field.name].dictionary_encode()
                if pa.types.is_string(columns[field.name].type)
                else columns[field.name]
                for field in TABLES[table].arrow_schema()
            ],
            names=TABLES[table].column_names,
        )

    def _opcode(self, table: str, number: int | None) -> str | None:
        if (table, number) not in self._opcode_names:
            ((name,),) = self.connection.execute(_OPCODES[table], [number]).fetchall()
            self._opcode_names[table, number] = name
        return self._opcode_names[table, number]

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
                "nic": pa.array(self._qps.values(), pa.int64()),
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


def _parted(later: pa.Table, new: pa.Table, watermark_ns: int) -> tuple[pa.Table, pa.Table]:
    """(records up to the watermark, later ones), each in the file's order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    switches = pa.concat_tables([later, new])
    due = pc.less_equal(switches["at_ns"], watermark_ns)
    return switches.filter(due), switches.filter(pc.invert(due))


def _in_thread_order(switches: pa.Table) -> tuple[pa.Table, pa.Table]:
    """(records in order of thread and time, those among them that the next block needs).

    Of each thread the next block needs everything from the switch before the last one on: the slice that begins at
    the last one is still open, and what it is depends on wake-ups just before it.
    """
    import numpy as np
    import pyarrow as pa

    if not switches.num_rows:
        return switches, switches
    switches = switches.combine_chunks()
    # Stable, and rows come in the order of the file. Threads are few, and small numbers are sorted by radix.
    by_time = np.argsort(switches["at_ns"].to_numpy(), kind="stable")
    thread = _ranks(switches["tid"])
    order = by_time[np.argsort(thread[by_time], kind="stable")]
    thread = thread[order]
    is_switch = switches["kind"].chunk(0).indices.to_numpy()[order] != KINDS.index("wake")
    rows = np.arange(order.size)
    first = np.flatnonzero(np.concatenate(([True], thread[1:] != thread[:-1])))
    count = np.diff(first, append=order.size)
    last_switch = np.repeat(np.maximum.reduceat(np.where(is_switch, rows, -1), first), count)
    before = np.repeat(np.maximum.reduceat(np.where(is_switch & (rows < last_switch), rows, -1), first), count)
    since = np.where(before >= 0, before, np.maximum(last_switch, 0))
    carried = switches.take(pa.array(order[rows >= since]))
    fresh = pa.repeat(pa.scalar(False), carried.num_rows)
    carried = carried.set_column(carried.column_names.index("fresh"), "fresh", fresh)
    return switches.take(pa.array(order)), carried


def _ranks(column: pa.ChunkedArray) -> NDArray[Any]:
    """Each value's place among the different values; in 16 bits where it fits."""
    import numpy as np
    import pyarrow.compute as pc

    encoded = pc.dictionary_encode(column).combine_chunks()
    rank = np.argsort(np.argsort(encoded.dictionary.to_numpy()))
    codes: NDArray[np.int32] = encoded.indices.to_numpy()
    return rank.astype(np.uint16 if rank.size <= 1 << 16 else np.int64)[codes]
