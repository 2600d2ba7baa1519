"""What an Nsight Systems export holds and its rows in the lake's schema, the same for every kind of export.

The SQL is in queries/sources/nsys/. Events pass through once as streams; what events join to (strings, API calls)
is staged in DuckDB, which spills to a temporary folder beyond its memory limit.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.model import comm_kernels, library
from pipeline.model.capture import Account, Capture, Clock, Gpu, Process, Status
from pipeline.model.errors import ConfigError, UnusableInput
from pipeline.model.run import RunConfig
from pipeline.model.schema import TABLES
from pipeline.sources import nsys_tables as tables
from pipeline.sources.ahead import ahead
from pipeline.sources.nsys_environment import environments
from pipeline.sources.nsys_overlap import StreamOverlap
from pipeline.sources.nsys_payload import PayloadDecoder
from pipeline.sources.nsys_tables import Export, Raw, records, resolve

if TYPE_CHECKING:
    import pyarrow as pa

PROCESS_MASK = ~0xFFFFFF
"""Process.key is a globalTid (or globalPid) with its thread bits cleared, as a signed 64-bit number: unique in a
report, also over virtual machines. The SQL macro nsys_process does the same."""

_MEMORY_LIMIT = "256MB"
_THREADS = 1
_BATCH_ROWS = 122_880  # DuckDB's row group
_CHUNK_ROWS = 2 * _BATCH_ROWS
_MANIFOLD = ("text", "payload")
"""Text columns that may hold as many values as there are rows."""
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
FARTHEST_NS = 2**55
"""A time more than 417 days from the session's start, either way, is no time: sums and differences would overflow."""
LARGEST_BYTES = 2**50
_AHEAD = 16  # batches of a reader: about a chunk
_GPU_VIEWS = {
    tables.KERNEL: "nsys_kernel_op",
    tables.GRAPH: "nsys_graph_op",
    tables.MEMCPY: "nsys_copy_op",
    tables.MEMSET: "nsys_memset_op",
}
_GPU_TABLES = tuple(_GPU_VIEWS)


def process_key(global_id: int) -> int:
    """The key of the process of a globalTid or globalPid."""
    return global_id & PROCESS_MASK


def _pid(key: int) -> int:
    return (key >> 24) & 0xFFFFFF


# ---------------------------------------------------------------------------------------------- inspect


def inspect(export: Export, kind: str) -> Capture:
    """What an export holds. Raises UnusableInput where it is none of Nsight Systems'."""
    present: dict[str, tables.Physical] = {}
    for raw in tables.EVENTS:
        physical = resolve(export.tables(), raw)
        if physical is not None and physical.rows:
            present[raw.table] = physical
    if not present and not any(resolve(export.tables(), raw) for raw in (tables.STRINGS, tables.SESSION)):
        raise UnusableInput(
            "not an export of Nsight Systems: none of its tables is here",
            where=export.path,
            todo="export a .nsys-rep with `nsys export`",
        )
    epoch_ns = session_start_ns(export)
    processes = _processes(export, present)
    reason = _unusable_reason(export, present)
    notes = [
        f"{raw.table} is {physical.name} here"
        for raw in tables.EVENTS
        if (physical := present.get(raw.table)) and physical.name != raw.table
    ]
    if epoch_ns is None:
        notes.append("no session start time: times count from the session's start and can't be aligned")
    version, schema = _versions(export)
    if schema:
        notes.append(f"export schema {schema}")
    return Capture(
        path=export.path,
        kind=kind,
        tool="nsys",
        tool_version=version,
        host=_host(export),
        clock=Clock.NONE if epoch_ns is None else Clock.REALTIME,
        status=Status.OK if reason is None else Status.UNUSABLE,
        reason=reason,
        processes=processes,
        present=tuple(present),
        missing=tuple(raw.table for raw in tables.EVENTS if raw.table not in present),
        notes=tuple(notes),
        bytes=export.size_bytes,
    )


def session_start_ns(export: Export) -> int | None:
    """UTC epoch ns at which the export's times begin; None where it does not say."""
    for row in records(export, tables.SESSION):
        if row["utcEpochNs"] and 0 < (epoch_ns := int(row["utcEpochNs"])) < _INT64_MAX - 2 * FARTHEST_NS:
            return epoch_ns
    return None


def _unusable_reason(export: Export, present: Mapping[str, tables.Physical]) -> str | None:
    if tables.KERNEL.table in present or tables.GRAPH.table in present:
        return None
    if (runtime := present.get(tables.RUNTIME.table)) is not None:
        ids = {row[0] for row in export.sample(runtime, ("nameId",))}
        names = (row["value"] for row in records(export, tables.STRINGS) if row["id"] in ids)
        if any("Launch" in name for name in names if name):
            return (
                "CUDA launch calls but no kernels: GPU activity was not recorded "
                "(driver newer than Nsight Systems, WSL or a virtual machine); this is not an idle GPU"
            )
    if not any(raw.table in present for raw in _GPU_TABLES):
        held = ", ".join(present) or "no events at all"
        return f"no GPU work in this report ({held})"
    return None


def _versions(export: Export) -> tuple[str | None, str | None]:
    meta = {row["name"]: row["value"] for raw in (tables.EXPORT_OLD, tables.EXPORT) for row in records(export, raw)}
    return meta.get("EXPORT_PRODUCT_VERSION"), meta.get("EXPORT_SCHEMA_VERSION")


def _host(export: Export) -> str | None:
    for row in records(export, tables.SYSTEM):
        if row["name"] == "Hostname" and row["value"]:
            return str(row["value"].decode("utf-8", "replace")) or None
    return None


def _processes(export: Export, present: Mapping[str, tables.Physical]) -> tuple[Process, ...]:
    devices: dict[int, set[int]] = {}
    nameless: set[int] = set()
    for raw in _GPU_TABLES:
        if (physical := present.get(raw.table)) is None:
            continue
        for global_pid, device in export.sample(physical, ("globalPid", "deviceId")):
            if global_pid is not None:
                devices.setdefault(process_key(global_pid), set()).add(device or 0)
            elif device is not None:
                nameless.add(device)
    for row in records(export, tables.CONTEXTS):
        # A context of a process that the sample missed; those without GPU work have none of it counted.
        for key in [k for k in devices if _pid(k) == row["processId"]]:
            devices[key].add(row["deviceId"] or 0)
    if nameless and (sole := sole_process(export, present)) is not None:
        devices.setdefault(sole, set()).update(nameless)
    names = {
        process_key(row["globalPid"]): row["name"]
        for row in records(export, tables.PROCESSES)
        if row["globalPid"] is not None
    }
    known = _Gpus(export)
    gpus = {key: tuple(known.gpu(_pid(key), d) for d in sorted(used)) for key, used in devices.items()}
    env = environments(export, gpus)
    return tuple(
        Process(key=key, pid=_pid(key), name=names.get(key), env=env.get(key, {}), gpus=gpus[key])
        for key in sorted(devices, key=lambda k: (_pid(k), k))
    )


def sole_process(export: Export, present: Mapping[str, tables.Physical]) -> int | None:
    """The one process whose API calls were traced; None where there are several or none."""
    runtime = present.get(tables.RUNTIME.table)
    if runtime is None:
        return None
    keys = {process_key(row[0]) for row in export.sample(runtime, ("globalTid",)) if row[0] is not None}
    return keys.pop() if len(keys) == 1 else None


class _Gpus:
    """GPUs of the machine, by what processes call them."""

    def __init__(self, export: Export) -> None:
        self._gpus = {row["id"]: row for row in records(export, tables.GPUS)}
        self._by_process = {(row["pid"], row["cudaId"]): row["gpuId"] for row in records(export, tables.DEVICES)}

    def gpu(self, pid: int, device: int) -> Gpu:
        """The GPU that process `pid` calls `device`: by the export's map, else by number."""
        index = self._by_process.get((pid, device))
        if index is None:
            by_cuda = [gpu for gpu, row in self._gpus.items() if row["cuDevice"] == device]
            index = by_cuda[0] if len(by_cuda) == 1 else device
        row = self._gpus.get(index, {})
        return Gpu(index=index, name=row.get("name"), uuid=row.get("uuid"))


# ------------------------------------------------------------------------------------------------- read


def read(
    export: Export,
    capture: Capture,
    ranks: Mapping[int, int],
    node: str,
    config: RunConfig,
    account: Account,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows of an export, table by table: all batches of a table come one after another, in the file's order.

    Work goes on in a thread of its own while the caller writes what it got; another one reads the file ahead.
    """
    yield from ahead(_rows(export, capture, ranks, node, config, account), depth=4)


def _rows(
    export: Export,
    capture: Capture,
    ranks: Mapping[int, int],
    node: str,
    config: RunConfig,
    account: Account,
) -> Iterator[tuple[str, pa.RecordBatch]]:
    with tempfile.TemporaryDirectory(prefix="mfuloss-nsys-") as scratch:
        reading = _Reading(export, capture, ranks, node, config, account, Path(scratch))
        try:
            yield from reading.rows()
        finally:
            reading.close()


@dataclass
class _Flags:
    """What is wrong with a table's rows, counted while they pass."""

    inverted: Counter[str] = field(default_factory=Counter)
    absurd: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    without_launch: int = 0
    ops: int = 0
    graph_rows: int = 0
    overlaps: StreamOverlap = field(default_factory=StreamOverlap)


class _Reading:
    def __init__(
        self,
        export: Export,
        capture: Capture,
        ranks: Mapping[int, int],
        node: str,
        config: RunConfig,
        account: Account,
        scratch: Path,
    ) -> None:
        import duckdb

        self.export, self.capture, self.account, self.scratch = export, capture, account, scratch
        self.ranks, self.node, self.config = ranks, node, config
        self.present = {raw.table: physical for raw in tables.EVENTS if (physical := resolve(export.tables(), raw))}
        self.flags = _Flags()
        self._failure: Exception | None = None
        # What is staged lies in a file: tables in memory are pinned where many chunks are appended to them.
        self.duckdb = duckdb.connect(
            str(scratch / "stage.duckdb"),
            config={
                "threads": _THREADS,
                "memory_limit": _MEMORY_LIMIT,
                "temp_directory": str(scratch),
                "preserve_insertion_order": True,
                "autoinstall_known_extensions": False,
                "autoload_known_extensions": False,
            },
        )
        # How many rows a stream has is unknown; left alone, the planner would hash the stream and probe with the lookup.
        self.duckdb.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        # For the same reason it would take an ASOF join for a small one and compare all pairs.
        self.duckdb.execute("SET asof_loop_join_threshold = 0")

    def close(self) -> None:
        self.duckdb.close()

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        self._prepare()
        yield from self._cuda_api()
        yield from self._nvtx()
        yield from self._gpu_ops()
        yield from self._stream("comm_ops", "nsys_comm_op")
        self._drop("nsys_comm_kernel", "nsys_comm_call", "nsys_comm_group")
        for table, view, raw in (
            ("os_calls", "nsys_os_call", tables.OSRT),
            ("thread_states", "nsys_thread_state", tables.SCHED),
            ("counters", "nsys_gpu_counter", tables.GPU_METRICS),
            ("counters", "nsys_nic_counter", tables.NIC_METRICS),
            ("counters", "nsys_switch_counter", tables.SWITCH_METRICS),
        ):
            if raw.table in self.present:
                self._register(raw)
                if raw in (tables.NIC_METRICS, tables.SWITCH_METRICS):
                    self._sql("_nsys_net_counter")
                yield from self._stream(table, view)
        yield from self._log_events()

    # -- stages

    def _prepare(self) -> None:
        import pyarrow as pa

        for name in ("nsys_process", "nsys_pid", "nsys_tid", "nsys_at", "nsys_unsigned", "nsys_graph", "nsys_launched"):
            self._sql(name)
        epoch_ns = session_start_ns(self.export)
        self._set("nsys_epoch_ns", epoch_ns or 0)
        self._set("nsys_sole_process", sole_process(self.export, self.present))
        self._set("nsys_node", self.node)
        self._set("nsys_comm_builtin", comm_kernels.builtin_pattern())
        self._set("nsys_comm_user", comm_kernels.user_pattern(self.config.comm.patterns))
        ranks = pa.table(
            {
                "process": pa.array(list(self.ranks.keys()), pa.int64()),
                "rank": pa.array(list(self.ranks.values()), pa.int64()),
            }
        )
        self._table("nsys_rank", ranks)
        for raw in tables.LOOKUPS:
            physical = resolve(self.export.tables(), raw)
            if physical is None:
                self.duckdb.register(raw.name, raw.schema().empty_table())
                continue
            batches = self._guard(self.export.batches(raw, physical))
            self._table(raw.name, pa.RecordBatchReader.from_batches(raw.schema(), batches))
        import duckdb

        try:
            self._sql("nsys_string")
        except duckdb.InvalidInputException as error:
            raise ConfigError(
                f"comm.patterns: {str(error).splitlines()[0]}",
                todo="use RE2's syntax: no look-around, no back-references",
            ) from None
        if resolve(self.export.tables(), tables.STRINGS) is not None:
            self._drop(tables.STRINGS.name)
        self._sql("nsys_copy_kind")

    def _cuda_api(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        self._sql("nsys_api_call")
        for chunk in _chunks(self._events(tables.RUNTIME), tables.RUNTIME.schema()):
            self.duckdb.register(tables.RUNTIME.name, chunk)
            self._sql("_nsys_api_rows")
            self.duckdb.execute("INSERT INTO nsys_api_call BY NAME FROM _nsys_api_rows")
            yield from self._stream("cuda_api", "nsys_cuda_api")

    def _nvtx(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        import pyarrow as pa

        raw = tables.NVTX
        decoder = PayloadDecoder(self.export)
        kept = [name for name in raw.columns if name != "binaryData"]
        schema = pa.schema(
            [raw.schema().field(name) for name in kept]
            + [pa.field("payload", pa.string()), pa.field("comm_id", pa.string())]
            + [pa.field(name, pa.int64()) for name in ("bytes", "n_ranks", "peer_rank")]
        )

        def decoded() -> Iterator[pa.RecordBatch]:
            for batch in self._events(raw):
                more = decoder.columns(batch.column("binaryData"))
                yield pa.RecordBatch.from_arrays(
                    [batch.column(name) for name in kept] + list(more.values()), schema=schema
                )

        self.duckdb.register("nsys_raw_nvtx_decoded", pa.RecordBatchReader.from_batches(schema, self._guard(decoded())))
        for name in ("nsys_nvtx_event", "nsys_domain"):
            self._sql(name)
        yield from self._stream("nvtx", "nsys_nvtx")
        self._sql("nsys_comm_call")
        self._drop("nsys_nvtx_event")
        self._sql("nsys_comm_group")

    def _gpu_ops(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        import pyarrow as pa
        import pyarrow.compute as pc

        schema = pa.schema(
            [pa.field(n, pa.int64()) for n in ("process", "comm_tid", "comm_group", "start_ns", "end_ns")]
        )
        spill = self.scratch / "comm_kernels.arrow"
        self._sql("nsys_launch")
        with pa.OSFile(str(spill), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:

            def keep(batch: pa.RecordBatch) -> None:
                if "comm_group" not in batch.schema.names:
                    return
                comm = batch.filter(pc.is_valid(batch.column("comm_group")))
                if comm.num_rows:
                    writer.write_batch(comm.select(schema.names))

            for window in _windows({raw: self._events(raw) for raw in _GPU_TABLES}):
                self._bound_launches(window)
                for raw, rows in window.items():
                    self.duckdb.register(raw.name, rows)
                self._sql("nsys_comm_launch")
                for view in _GPU_VIEWS.values():
                    self._sql(view)
                self.flags.graph_rows += window[tables.GRAPH].num_rows
                # One table's rows are in its own order already; several must be merged.
                live = [raw for raw, rows in window.items() if rows.num_rows]
                yield from self._stream("gpu_ops", _GPU_VIEWS[live[0]] if len(live) == 1 else "nsys_gpu_op", keep)
        self._drop("nsys_api_call")
        with pa.memory_map(str(spill)) as source:
            self._table("nsys_comm_kernel", pa.ipc.open_stream(source))

    def _bound_launches(self, window: Mapping[Raw, pa.Table]) -> None:
        """Tell nsys_launch which calls the window can join to."""
        import pyarrow as pa
        import pyarrow.compute as pc

        def column(name: str) -> pa.ChunkedArray:
            return pa.chunked_array([c for rows in window.values() for c in rows.column(name).chunks], pa.int64())

        ids, pids = column("correlationId"), column("globalPid")
        bounds = pc.min_max(ids.filter(pc.fill_null(pc.not_equal(ids, 0), False))).as_py()
        self._set("nsys_first_correlation", bounds["min"])
        self._set("nsys_last_correlation", bounds["max"])
        keys = pc.min_max(pc.bit_wise_and(pids, PROCESS_MASK)).as_py()
        anyone = bool(pids.null_count)
        self._set("nsys_first_process", _INT64_MIN if anyone else keys["min"])
        self._set("nsys_last_process", _INT64_MAX if anyone else keys["max"])

    def _log_events(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        from pipeline.sources import nsys_log

        events, losses = nsys_log.events(
            self.export, self.capture, self.ranks, self.node, self.flags, session_start_ns(self.export) or 0
        )
        if dropped := self.flags.absurd.total():
            self.account.partial(
                f"{dropped} rows have impossible times and are left out (log_events says of which tables)"
            )
        for table, found in (("log_events", events), ("losses", losses)):
            if found:
                yield table, _batch(table, found)
        if losses:
            counts = [loss["lost_events"] for loss in losses]
            if all(count is not None for count in counts):
                self.account.lost_events = sum(counts)
            self.account.partial("Nsight Systems says that it lost events")

    # -- plumbing

    def _sql(self, name: str) -> None:
        self._run(lambda: self.duckdb.execute(library.sql(name)))

    def _run(self, action: Callable[[], Any]) -> Any:
        """`action`, with an error of a reader that DuckDB wrapped on the way up unwrapped."""
        import duckdb

        try:
            return action()
        except duckdb.Error:
            if self._failure is not None:
                raise self._failure from None
            raise

    def _set(self, name: str, value: int | str | None) -> None:
        self.duckdb.execute(f"SET VARIABLE {name} = $1", [value])

    def _table(self, name: str, rows: Any) -> None:
        self.duckdb.register("nsys_incoming", rows)
        self._run(lambda: self.duckdb.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM nsys_incoming"))
        self.duckdb.unregister("nsys_incoming")

    def _drop(self, *names: str) -> None:
        for name in names:
            self.duckdb.execute(f"DROP TABLE IF EXISTS {name}")

    def _register(self, raw: Raw) -> None:
        import pyarrow as pa

        batches = self._events(raw)
        self.duckdb.register(raw.name, pa.RecordBatchReader.from_batches(raw.schema(), self._guard(batches)))

    def _events(self, raw: Raw) -> Iterator[pa.RecordBatch]:
        if (physical := self.present.get(raw.table)) is None:
            return
        for batch in ahead(self.export.batches(raw, physical), depth=_AHEAD):
            yield self._plausible(raw, batch)

    def _plausible(self, raw: Raw, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows without an impossible time; impossible sizes unknown. Both are counted."""
        import pyarrow.compute as pc

        def beyond(name: str, least: int, most: int) -> pa.BooleanArray | None:
            ends = pc.min_max(batch.column(name)).as_py()
            if ends["min"] is None or (least <= ends["min"] and ends["max"] <= most):
                return None
            column = batch.column(name)
            return pc.fill_null(pc.or_(pc.less(column, least), pc.greater(column, most)), False)

        for name in ("start", "end", "timestamp"):
            if name in raw.ints and (wrong := beyond(name, -FARTHEST_NS, FARTHEST_NS)) is not None:
                self.flags.absurd[raw.table] += wrong.true_count
                batch = batch.filter(pc.invert(wrong))
        if "bytes" in raw.ints and (wrong := beyond("bytes", 0, LARGEST_BYTES)) is not None:
            self.flags.sizes[raw.table] += wrong.true_count
            known = pc.if_else(wrong, None, batch.column("bytes"))
            batch = batch.set_column(batch.schema.get_field_index("bytes"), batch.schema.field("bytes"), known)
        return batch

    def _guard(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as error:
            self._failure = error
            raise

    def _stream(
        self, table: str, view: str, seen: Callable[[pa.RecordBatch], None] | None = None
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        self._sql(view)
        schema = TABLES[table].arrow_schema()
        reader = self._run(lambda: self.duckdb.sql(f"FROM {view}").to_arrow_reader(_BATCH_ROWS))
        while True:
            try:
                batch = self._run(reader.read_next_batch)
            except StopIteration:
                return
            except OSError:
                if self._failure is not None:
                    raise self._failure from None
                raise
            self._flag(table, batch)
            if seen is not None:
                seen(batch)
            yield table, _conform(batch, schema)

    def _flag(self, table: str, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        names = batch.schema.names
        if "start_ns" in names and "end_ns" in names:
            inverted = pc.sum(pc.less(batch.column("end_ns"), batch.column("start_ns"))).as_py() or 0
            self.flags.inverted[table] += inverted
        if table == "gpu_ops":
            self.flags.ops += batch.num_rows
            self.flags.without_launch += batch.column("launch_start_ns").null_count
            self.flags.overlaps.add(batch)


def _chunks(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Batches put together to chunks of about `_CHUNK_ROWS`."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(b.num_rows for b in held) >= _CHUNK_ROWS:
            yield pa.Table.from_batches(held, schema)
            held = []
    if held:
        yield pa.Table.from_batches(held, schema)


def _windows(streams: Mapping[Raw, Iterator[pa.RecordBatch]]) -> Iterator[dict[Raw, pa.Table]]:
    """Tables cut at common instants, so that each window follows the one before in time as far as each table does."""
    import pyarrow.compute as pc

    empty = {raw: raw.schema().empty_table() for raw in streams}
    chunks = {raw: _chunks(batches, raw.schema()) for raw, batches in streams.items()}
    held = dict(empty)
    while True:
        for raw in streams:
            if not held[raw].num_rows:
                held[raw] = next(chunks[raw], empty[raw])
        ends = [pc.max(rows.column("start")).as_py() for rows in held.values() if rows.num_rows]
        if not ends:
            return
        edge = min((end for end in ends if end is not None), default=None)
        window: dict[Raw, pa.Table] = {}
        for raw, rows in held.items():
            inside = pc.fill_null(pc.less_equal(rows.column("start"), edge), True)
            whole = edge is None or pc.all(inside).as_py() is not False
            window[raw] = rows if whole else rows.filter(inside)
            held[raw] = empty[raw] if whole else rows.filter(pc.invert(inside))
        yield window


def _conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """In the lake's schema, names as dictionaries: they are few, and from here on each row has only its number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def column(field: pa.Field) -> pa.Array:
        if field.name not in batch.schema.names:
            return pa.nulls(batch.num_rows, field.type)
        values = batch.column(field.name).cast(field.type)
        return values if field.name in _MANIFOLD or not pa.types.is_string(field.type) else pc.dictionary_encode(values)

    return pa.RecordBatch.from_arrays([column(f) for f in schema], [f.name for f in schema])


def _batch(table: str, rows: list[dict[str, Any]]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(rows, schema=TABLES[table].arrow_schema())
