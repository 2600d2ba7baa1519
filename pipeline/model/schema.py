"""Every lake table and column, with type, unit and meaning. Pure data.

Types are DuckDB's names. A column whose `kind` is TIME holds int64 ns since the UTC epoch on the run
clock; sources yield it on the clock of their capture and ingest maps it. Durations and sizes are
never mapped. `run` is no stored column: views add it from the folder's name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class Kind(StrEnum):
    """What a column's number means."""

    TIME = "time"
    DURATION = "duration"
    SIZE = "size"
    PLAIN = "plain"


@dataclass(frozen=True)
class Column:
    """A column: DuckDB type, kind, and a sentence for the reference page."""

    name: str
    type: str
    text: str
    kind: Kind = Kind.PLAIN


@dataclass(frozen=True)
class Table:
    """A lake table. `sort` orders every file; `derived` tables are written by attribution."""

    name: str
    text: str
    columns: tuple[Column, ...]
    sort: tuple[str, ...]
    derived: bool = False

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def time_columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.kind is Kind.TIME)

    def arrow_schema(self) -> pa.Schema:
        """The one schema of every file of this table (imports pyarrow)."""
        import pyarrow as pa

        kinds = {
            "BIGINT": pa.int64(),
            "UBIGINT": pa.uint64(),
            "INTEGER": pa.int32(),
            "DOUBLE": pa.float64(),
            "BOOLEAN": pa.bool_(),
            "VARCHAR": pa.string(),
        }
        return pa.schema([pa.field(c.name, kinds[c.type]) for c in self.columns])


def _t(name: str, text: str) -> Column:
    return Column(name, "BIGINT", text, Kind.TIME)


def _d(name: str, text: str) -> Column:
    return Column(name, "BIGINT", text, Kind.DURATION)


def _b(name: str, text: str) -> Column:
    return Column(name, "BIGINT", text, Kind.SIZE)


def _i(name: str, text: str) -> Column:
    return Column(name, "BIGINT", text)


def _u(name: str, text: str) -> Column:
    return Column(name, "UBIGINT", text)


def _s(name: str, text: str) -> Column:
    return Column(name, "VARCHAR", text)


def _f(name: str, text: str) -> Column:
    return Column(name, "DOUBLE", text)


def _o(name: str, text: str) -> Column:
    return Column(name, "BOOLEAN", text)


_RANK = _i("rank", "rank of the process; NULL where no rule gives one")
_NODE = _s("node", "host name, or the capture's folder where the file does not say")
_PID = _i("pid", "process id on its node")
_TID = _i("tid", "thread id on its node")
_NIC = _s("nic", "RDMA device, for example mlx5_0; NULL where unknown")
_QP = _i("qp", "queue pair number")
_STEP = _i("step", "number in the step range's name, else the ordinal from 0")
_START = _t("start_ns", "start")
_END = _t("end_ns", "end, exclusive; NULL for an unclosed range")
_COMM = _s("comm_id", "communicator, as text; NULL where no source gives one")
_SEQ = _i("seq", "sequence number of the operation in its communicator; NULL where unknown")
_CATEGORY = _s("category", "category of attribution (table categories)")
_EVIDENCE = _s("evidence", "how it is known: measured_*, inferred, modelled, assumed")

_TABLES: tuple[Table, ...] = (
    Table(
        "captures",
        "an input file",
        (
            _s("capture_id", "first 16 hex digits of the content's SHA-256 with the name's"),
            _s("name", "path from the input folder on, its own name first"),
            _s("kind", "input format, for example nsys_sqlite or ebpf_csv"),
            _s("tool", "program that recorded it"),
            _s("tool_version", "its version, as the file says"),
            _s("host", "node"),
            _s("sha256", "SHA-256 of the content (of all files of a folder export)"),
            _b("bytes", "size of the input"),
            _s("status", "ok, partial or unusable"),
            _s("reason", "why it is not ok, one line"),
            _i("rows", "rows that went into the lake"),
            _i("lost_events", "events that the recording tool declares lost; NULL where it can't tell"),
            _s("clock", "clock of the file: realtime, boottime, monotonic, none"),
            _d(
                "offset_ns",
                "what was added to the file's times at its first event to reach the run clock; NULL: unaligned",
            ),
            _d("offset_error_ns", "half-width of the interval that holds the true offset"),
            _t("first_ns", "first event"),
            _t("last_ns", "last event"),
            _d(
                "probe_cost_ns",
                "what the probes add to a call's measured duration, taken out of it; NULL: not calibrated",
            ),
            _d("probe_exit_ns", "part of it after the function's end; NULL: unknown, then all of it was taken there"),
            _d("probe_call_ns", "what the probes cost the thread in all, a call; NULL: unknown"),
            _s("present", "event tables that the file holds, comma-separated"),
            _s("missing", "what the file could have held and does not, comma-separated"),
        ),
        ("name", "capture_id"),
    ),
    Table(
        "ranks",
        "a GPU process",
        (
            _RANK,
            _NODE,
            _i("local_rank", "ordinal of the rank on its node"),
            _PID,
            _i("gpu_index", "device index on the node"),
            _s("gpu_name", "GPU model, as the driver names it"),
            _s("gpu_uuid", "GPU UUID"),
            _NIC,
            _s("link_layer", "InfiniBand or Ethernet; NULL where unknown"),
        ),
        ("rank",),
    ),
    Table(
        "gpu_ops",
        "a kernel, copy or memset",
        (
            _RANK,
            _i("device", "device index in the process"),
            _i("context", "CUDA context id"),
            _i("stream", "CUDA stream id; a stream is (rank, device, context, stream)"),
            _START,
            _END,
            _s("op_class", "compute, comm or copy (memsets are copies)"),
            _s("name", "kernel name, or the kind of copy"),
            _s(
                "comm_op",
                "collective that the kernel runs, 'unknown' where nothing says; NULL unless op_class is comm",
            ),
            _b("bytes", "bytes copied or set; of the collective where known"),
            _s("copy_kind", "for example Host-to-Device, Memset, Unified Host-to-Device; NULL for kernels"),
            _i("correlation_id", "joins to cuda_api within the rank; 0 or NULL: none"),
            _i("graph_id", "CUDA graph; NULL outside graphs"),
            _u("graph_node_id", "node in the graph; NULL outside graphs or where the graph is opaque"),
            _t("launch_start_ns", "start of the launching API call; NULL: launched before the capture"),
            _t("launch_end_ns", "end of the launching API call"),
            _i("launch_tid", "thread that launched it"),
        ),
        ("rank", "start_ns"),
    ),
    Table(
        "cuda_api",
        "a CUDA runtime or driver call",
        (
            _RANK,
            _TID,
            _START,
            _END,
            _s("name", "function, without version suffix"),
            _i("correlation_id", "joins to gpu_ops within the rank"),
        ),
        ("rank", "start_ns"),
    ),
    Table(
        "nvtx",
        "an NVTX range or mark",
        (
            _RANK,
            _TID,
            _s("domain", "NVTX domain; NULL for the default domain"),
            _s("kind", "push_pop, start_end or mark"),
            _START,
            _END,
            _s("text", "its text"),
            _s("payload", "decoded payload as JSON; NULL where there is none"),
        ),
        ("rank", "start_ns"),
    ),
    Table(
        "os_calls",
        "an OS runtime call that was traced",
        (_RANK, _TID, _START, _END, _s("name", "function")),
        ("rank", "start_ns"),
    ),
    Table(
        "thread_states",
        "a time slice of a thread",
        (
            _NODE,
            _PID,
            _TID,
            _s("name", "thread name; NULL where unknown"),
            _i("cpu", "core; NULL while off-CPU"),
            _START,
            _END,
            _s("state", "running, runnable or blocked"),
            _i(
                "other_tid",
                "runnable: the thread that runs in its place; blocked: the waker; NULL where unknown",
            ),
        ),
        ("node", "tid", "start_ns"),
    ),
    Table(
        "rdma_posts",
        "a post_send call",
        (
            _NODE,
            _RANK,
            _PID,
            _TID,
            _i("cpu", "core"),
            _NIC,
            _QP,
            _u("wr_id", "work request id; not unique"),
            _s(
                "opcode",
                "of the first work request: RDMA_WRITE, RDMA_WRITE_WITH_IMM, SEND, SEND_WITH_IMM, RDMA_READ, "
                "ATOMIC_CMP_AND_SWP, ATOMIC_FETCH_AND_ADD, else the number",
            ),
            _i("n_wr", "work requests in the chain"),
            _b("bytes", "payload of the whole chain"),
            _o("signaled", "the last work request asks for a completion"),
            _t("enter_ns", "entry of post_send"),
            _t("exit_ns", "return of post_send, probe cost subtracted where calibrated"),
            _i("ret", "return value, 0 is success"),
            _t("doorbell_ns", "doorbell write begins, where an offset probe saw it"),
            _s("source", "tool that saw it: bpftrace, libbpf, bcc, perf, nccl_profiler"),
        ),
        ("node", "enter_ns"),
    ),
    Table(
        "rdma_completions",
        "a completion seen by a poll",
        (
            _NODE,
            _RANK,
            _PID,
            _TID,
            _NIC,
            _QP,
            _u("wr_id", "work request id"),
            _i("status", "ibv_wc_status, 0 is success"),
            _s("opcode", "ibv_wc_opcode by name, else the number"),
            _t("seen_ns", "return of the poll that saw it"),
        ),
        ("node", "seen_ns"),
    ),
    Table(
        "rdma_qps",
        "what is known of a queue pair",
        (
            _NODE,
            _PID,
            _NIC,
            _QP,
            _i("peer_qp", "remote queue pair"),
            _i("peer_rank", "rank at the other end"),
            _s("peer_class", "same_node, same_rail, cross_rail; NULL where unknown"),
            _t("at_ns", "when it was seen"),
        ),
        ("node", "qp", "at_ns"),
    ),
    Table(
        "comm_ops",
        "a collective or point-to-point operation of a rank",
        (
            _RANK,
            _COMM,
            _SEQ,
            _s("op", "AllReduce, AllToAll, SendRecv and alike; 'unknown' where nothing says"),
            _b("bytes", "message size as the library counts it"),
            _i("n_ranks", "size of the communicator"),
            _START,
            _END,
            _t("arrival_ns", "the rank's communication kernel starts; NULL where no kernel was matched"),
            _s("source", "nvtx, nccl_profiler, nccl_inspector, flight_recorder, kernel, run_toml"),
            _i("peer_rank", "point-to-point: the peer; NULL for collectives"),
        ),
        ("rank", "start_ns"),
    ),
    Table(
        "comm_phases",
        "a phase of the NCCL proxy, from its profiler",
        (
            _RANK,
            _COMM,
            _SEQ,
            _i("channel", "channel"),
            _i("peer_rank", "peer"),
            _s(
                "phase",
                "SendGPUWait (notify), SendPeerWait (credit), SendWait (in flight), RecvWait and alike",
            ),
            _START,
            _END,
            _b("bytes", "transfer size of the step"),
        ),
        ("rank", "start_ns"),
    ),
    Table(
        "counters",
        "a sample of a counter",
        (
            _NODE,
            _s("device", "RDMA or network device, or GPU"),
            _i("port", "port; NULL for GPUs"),
            _s("link_layer", "InfiniBand or Ethernet; NULL where it does not apply"),
            _s("counter", "name as its driver gives it"),
            _t("at_ns", "when it was read"),
            _f("value", "reading, in the counter's own unit"),
        ),
        ("node", "device", "counter", "at_ns"),
    ),
    Table(
        "log_events",
        "a recognised log line, environment variable, or flag that reading raised",
        (
            _NODE,
            _RANK,
            _t("at_ns", "when; NULL where the log has no time"),
            _s("source", "nccl, nvshmem, env, nsys, ebpf, flight_recorder"),
            _s("code", "what it is, a stable word"),
            _s("severity", "info, warning or error"),
            _s("text", "the line"),
        ),
        ("node", "at_ns", "code"),
    ),
    Table(
        "losses",
        "a declared loss of events",
        (
            _NODE,
            _RANK,
            _s("source", "ebpf or nsys"),
            _START,
            _END,
            _i("lost_events", "how many; NULL: unknown"),
        ),
        ("node", "start_ns"),
    ),
    Table(
        "topology",
        "the path between a GPU and a NIC, or two GPUs, of a node",
        (
            _NODE,
            _s("a", "GPU<n> or NIC device"),
            _s("b", "GPU<n> or NIC device"),
            _s("path", "nvidia-smi's word: X, NV#, PIX, PXB, PHB, NODE, SYS"),
        ),
        ("node", "a", "b"),
    ),
    Table(
        "steps",
        "a step of a rank",
        (
            _RANK,
            _STEP,
            _START,
            _END,
            _s("source", "nvtx, inferred or window"),
            _f("confidence", "1 for nvtx; share of agreement for inferred; 0 for window"),
            _o(
                "complete",
                "both edges lie inside the capture and no loss touches it; only such steps enter statistics",
            ),
            _o(
                "outlier",
                "much longer than its neighbours (evaluation, checkpoint, warm-up); left out of means",
            ),
        ),
        ("rank", "start_ns"),
        derived=True,
    ),
    Table(
        "rdma_messages",
        "a post joined to its completion, FIFO per (node, pid, qp)",
        (
            _NODE,
            _RANK,
            _PID,
            _TID,
            _NIC,
            _QP,
            _u("wr_id", "work request id"),
            _b("bytes", "payload of the message"),
            _s("opcode", "of the first work request"),
            _t("enter_ns", "entry of post_send"),
            _t("exit_ns", "return of post_send"),
            _t("complete_ns", "completion seen; NULL: never seen"),
            _i("outstanding_at_post", "messages of the queue pair in flight at enter_ns"),
            _o(
                "blocked",
                "posted only after the completion of the one before was seen, with nothing else in flight, "
                "no wake-up of the thread between",
            ),
            _i("status", "ibv_wc_status; NULL: no completion"),
            _s("opcode_class", "write, read, atomic or send"),
            _t(
                "service_start_ns",
                "service on the wire starts (FIFO at beta); NULL where beta is unidentified",
            ),
            _t("service_end_ns", "service on the wire ends"),
            _o("chain", "part of a stop-and-wait chain; NULL where beta is unidentified"),
            _t(
                "released_ns",
                "not in flight any more: complete_ns, or for a lost completion the next one seen; NULL: in flight "
                "to the end",
            ),
            _t("doorbell_ns", "doorbell write begins, where an offset probe saw it"),
            _STEP,
            _i("op_id", "communication operation of the rank that was open at enter_ns; NULL: none"),
        ),
        ("rank", "node", "enter_ns"),
        derived=True,
    ),
    Table(
        "segments",
        "a piece of a step",
        (_RANK, _STEP, _START, _END, _CATEGORY, _EVIDENCE),
        ("rank", "start_ns"),
        derived=True,
    ),
    Table(
        "breakdown",
        "a category of a step, by evidence",
        (
            _RANK,
            _STEP,
            _CATEGORY,
            _EVIDENCE,
            _d("attributed_ns", "time that the sweep gave it"),
            _d("exclusive_ns", "time when only it held; NULL for leaves of ctl_cpu"),
            _d("inclusive_ns", "time when it held at all"),
            _d("hidden_ns", "inclusive - attributed: overlapped by something of higher order"),
            _d("lo_ns", "lower bound of attributed_ns"),
            _d("hi_ns", "upper bound of attributed_ns"),
        ),
        ("rank", "step", "category", "evidence"),
        derived=True,
    ),
    Table(
        "waits",
        "a wait on a peer",
        (
            _RANK,
            _STEP,
            _COMM,
            _SEQ,
            _s("op", "operation"),
            _s("kind", "straggler, pipeline, sender or credit"),
            _i("culprit_rank", "rank that was waited for"),
            _START,
            _END,
            _d("wait_ns", "the wait, net of compute"),
            _d("clock_error_ns", "error bound of the two ranks' clocks"),
            _o("within_clock_error", "too short to be told from clock error: not charged"),
        ),
        ("rank", "start_ns", "culprit_rank"),
        derived=True,
    ),
    Table(
        "delay_cost",
        "a wait, charged to what its culprit did meanwhile",
        (
            _i("victim_rank", "rank that waited"),
            _i("culprit_rank", "rank charged at this hop"),
            _STEP,
            _CATEGORY,
            _d("delay_ns", "time charged"),
            _i("hop", "0: the peer waited for; 1: the one that it waited for; ..."),
        ),
        ("victim_rank", "step", "culprit_rank", "category", "hop"),
        derived=True,
    ),
    Table(
        "clock_offsets",
        "a node's clock against the run clock, as clocks found it",
        (
            _s("node", "node"),
            _s("reference", "reference node, the run clock; NULL: unaligned"),
            _d("offset_ns", "what was added to the node's UTC to reach the run clock, at at_ns; NULL: unaligned"),
            _d("error_ns", "bound of the remaining error against the reference, over the whole run"),
            _f("drift_ppb", "rate of the run clock against the node's clock, parts per billion"),
            _t("at_ns", "instant of the node's UTC at which offset_ns holds"),
            _i("n", "collectives used"),
            _s("status", "reference, fitted or unaligned"),
        ),
        ("node",),
    ),
    Table(
        "clock_pairs",
        "the bound of the error between two nodes' clocks on the run clock, in a window of the run",
        (
            _NODE,
            _s("other_node", "the other node; a pair has a row each way, an unaligned one has none"),
            _START,
            _END,
            _d("error_ns", "bound of the error of a difference of the two nodes' times"),
        ),
        ("node", "other_node", "start_ns"),
    ),
    Table(
        "fits",
        "a fitted link or path",
        (
            _NIC,
            _s("peer_class", "same_rail, cross_rail, all"),
            _s("op", "opcode class"),
            _s("initiator", "cpu or gpu"),
            _i("n", "messages used"),
            _s("status", "both, alpha_only, beta_only, gap_only, unidentified"),
            _f("alpha_ns", "latency of an empty message, ns"),
            _f("alpha_lo", "95 % interval, ns"),
            _f("alpha_hi", "95 % interval, ns"),
            _f("gap_ns", "time per message of a pipelined stream"),
            _f("beta_bytes_per_s", "payload bandwidth, one way"),
            _f("beta_lo", "95 % interval, bytes/s"),
            _f("beta_hi", "95 % interval, bytes/s"),
            _f("n_half_bytes", "size that reaches half of beta: alpha * beta"),
            _d("rtt0_ns", "base round trip of an empty message"),
            _s("beta_source", "run_toml or fit; NULL: unidentified"),
            _s("node", "node; NULL: all"),
        ),
        ("node", "nic", "peer_class", "op"),
        derived=True,
    ),
    Table(
        "findings",
        "a detector's verdict",
        (
            _s("code", "which detector"),
            _s("severity", "info, warning or critical"),
            _RANK,
            _NODE,
            _NIC,
            _STEP,
            _i("place", "order of explanation: causes before what they cause, 0 first"),
            _s("measure", "what was measured, with its unit"),
            _f("value", "measured value"),
            _f("threshold", "threshold that it crossed"),
            _EVIDENCE,
            _s("text", "one sentence"),
            _s("confounders", "excluded: ...; not excluded: ..."),
            _s("next", "what to check next"),
        ),
        ("place", "rank", "step", "node", "nic"),
        derived=True,
    ),
    Table(
        "mfu",
        "a category of a run, rank or step in MFU points; mfu and compute_loss in place of compute",
        (
            _s("scope", "run, rank or step"),
            _RANK,
            _STEP,
            _CATEGORY,
            _f("points", "share of wall time, 100 in all"),
            _EVIDENCE,
            _d("attributed_ns", "time behind the points; NULL for mfu and compute_loss"),
            Column("numerator", "VARCHAR", "points as an exact fraction: numerator, decimal digits"),
            Column("denominator", "VARCHAR", "points as an exact fraction: denominator, decimal digits"),
        ),
        ("scope", "rank", "step", "category", "evidence"),
        derived=True,
    ),
    Table(
        "run_facts",
        "a scalar about a run: how it was computed, what it lacks",
        (
            _s("name", "name, with the unit at its end"),
            _s("value", "value as text"),
            _s("text", "what it means"),
        ),
        ("name",),
        derived=True,
    ),
)

TABLES: dict[str, Table] = {table.name: table for table in _TABLES}
"""Every lake table by name."""
EVENT_TABLES: tuple[str, ...] = tuple(t.name for t in _TABLES if not t.derived)
DERIVED_TABLES: tuple[str, ...] = tuple(t.name for t in _TABLES if t.derived)
