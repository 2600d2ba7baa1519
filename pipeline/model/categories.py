"""The category tree of attribution: its order, classes, parents and evidence. Nowhere else.

`ORDER` is the priority of the sweep: at each instant the first category that holds gets the time.
SQL reads it as the table `categories` (see `rows`), so no query repeats it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Evidence(StrEnum):
    """How a figure is known, from strongest to weakest."""

    MEASURED_NSYS = "measured_nsys"
    MEASURED_EBPF = "measured_ebpf"
    MEASURED_PROFILER = "measured_profiler"
    INFERRED = "inferred"
    MODELLED = "modelled"
    ASSUMED = "assumed"


class Headline(StrEnum):
    """The four headline classes of a report; a category outside them has none."""

    CPU_DOORBELL = "cpu_doorbell"
    CONTROL_PLANE_ALPHA = "control_plane_alpha"
    RDMA_TRANSFER = "rdma_transfer"
    BLOCKING_RTT = "blocking_rtt"


GIVEN_BACK: tuple[Headline, ...] = (
    Headline.RDMA_TRANSFER,
    Headline.BLOCKING_RTT,
    Headline.CONTROL_PLANE_ALPHA,
    Headline.CPU_DOORBELL,
)
"""Order in which replays give a network that takes no time its time back: what physics sets first, all the rest last."""


@dataclass(frozen=True)
class Category:
    """A node of the tree.

    priority: place in the sweep, 1 first; a leaf of ctl_cpu has the priority of ctl_cpu and is
    assigned by division, never by the sweep. parent: where its time goes when its source is missing.
    comm: part of exposed communication (I10). sibling_order decides between categories of one priority.
    """

    name: str
    priority: int
    group: str
    evidence: Evidence
    parent: str | None
    headline: Headline | None
    comm: bool
    leaf_of: str | None
    text: str


def _c(
    name: str,
    priority: int,
    group: str,
    evidence: Evidence,
    text: str,
    *,
    parent: str | None = None,
    headline: Headline | None = None,
    leaf_of: str | None = None,
) -> Category:
    comm = group in ("network", "wait", "comm")
    return Category(name, priority, group, evidence, parent, headline, comm, leaf_of, text)


_N, _E, _P, _I, _M = (
    Evidence.MEASURED_NSYS,
    Evidence.MEASURED_EBPF,
    Evidence.MEASURED_PROFILER,
    Evidence.INFERRED,
    Evidence.MODELLED,
)
_CU = "comm_unattributed"

CATEGORIES: tuple[Category, ...] = (
    _c("compute", 1, "compute", _N, "a kernel that is not communication is resident on the GPU"),
    _c("wait_straggler", 2, "wait", _I, "a peer that this collective needs has not arrived", parent=_CU),
    _c(
        "wait_pipeline",
        3,
        "wait",
        _I,
        "the pipeline peer of this send or receive has not arrived",
        parent=_CU,
    ),
    _c(
        "rdma_transfer",
        4,
        "network",
        _I,
        "a message of this rank occupies the wire",
        parent=_CU,
        headline=Headline.RDMA_TRANSFER,
    ),
    _c("ctl_cpu", 5, "network", _E, "the wire is idle and the CPU proxy holds up a message", parent=_CU),
    _c(
        "ctl_schedule",
        5,
        "network",
        _E,
        "the proxy thread is runnable but not running",
        parent="ctl_cpu",
        headline=Headline.CONTROL_PLANE_ALPHA,
        leaf_of="ctl_cpu",
    ),
    _c(
        "ctl_loop",
        5,
        "network",
        _E,
        "the proxy runs between two posts of the operation",
        parent="ctl_cpu",
        headline=Headline.CONTROL_PLANE_ALPHA,
        leaf_of="ctl_cpu",
    ),
    _c(
        "ctl_post",
        5,
        "network",
        _E,
        "inside post_send: work request and doorbell jointly",
        parent="ctl_cpu",
        headline=Headline.CPU_DOORBELL,
        leaf_of="ctl_cpu",
    ),
    _c(
        "ctl_wqe",
        5,
        "network",
        _E,
        "post_send builds the work request",
        parent="ctl_post",
        headline=Headline.CONTROL_PLANE_ALPHA,
        leaf_of="ctl_cpu",
    ),
    _c(
        "ctl_doorbell",
        5,
        "network",
        _E,
        "post_send rings the doorbell",
        parent="ctl_post",
        headline=Headline.CPU_DOORBELL,
        leaf_of="ctl_cpu",
    ),
    _c(
        "ctl_fetch",
        6,
        "network",
        _M,
        "the NIC fetches the work request",
        parent=_CU,
        headline=Headline.CONTROL_PLANE_ALPHA,
    ),
    _c(
        "blocking_rtt",
        7,
        "network",
        _I,
        "the base round trip of a stop-and-wait chain",
        parent=_CU,
        headline=Headline.BLOCKING_RTT,
    ),
    _c("net_latency", 8, "network", _I, "the base latency of a message outside stop-and-wait", parent=_CU),
    _c(
        "net_excess",
        9,
        "network",
        _I,
        "in flight beyond wire and base latency: queueing, incast, retransmission",
        parent=_CU,
    ),
    _c(
        "ctl_notify",
        10,
        "network",
        _P,
        "the GPU's notification of the proxy is open",
        parent=_CU,
        headline=Headline.CONTROL_PLANE_ALPHA,
    ),
    _c("wait_credit", 11, "network", _P, "the receiver's credit is awaited", parent=_CU),
    _c(
        "wait_sender",
        12,
        "wait",
        _I,
        "another participant still has messages to post or in flight",
        parent=_CU,
    ),
    _c("trace_gap", 13, "gap", _E, "a declared loss of events covers this time"),
    _c("nvlink_transfer", 14, "comm", _N, "a communication kernel between GPUs of this node", parent=_CU),
    _c("comm_unattributed", 15, "comm", _N, "a communication kernel is resident and nothing finer is known"),
    _c("memcpy", 16, "copy", _N, "an exposed copy or memset"),
    _c(
        "gpu_dependency",
        17,
        "host",
        _N,
        "the GPU is idle though the next operation was already launched",
        parent="idle_other",
    ),
    _c(
        "host_sync",
        18,
        "host",
        _N,
        "idle: the launching thread is in a synchronising call",
        parent="idle_other",
    ),
    _c("host_data", 19, "host", _N, "idle: the launching thread loads data", parent="idle_other"),
    _c(
        "host_other",
        20,
        "host",
        _N,
        "idle: the launching thread is blocked in another call or off-CPU",
        parent="idle_other",
    ),
    _c("host_launch", 21, "host", _N, "idle: the launching thread runs between launches", parent="idle_other"),
    _c("idle_other", 22, "idle", _N, "idle, and no thread or launch to ask"),
)

BY_NAME: dict[str, Category] = {category.name: category for category in CATEGORIES}
SWEPT: tuple[str, ...] = tuple(c.name for c in CATEGORIES if c.leaf_of is None)
"""Categories that the sweep assigns, in order of priority."""
CTL_CPU_LEAVES: tuple[str, ...] = tuple(c.name for c in CATEGORIES if c.leaf_of == "ctl_cpu")
"""Leaves of ctl_cpu, in the order that breaks ties of the largest-remainder division."""
MFU_ROWS: tuple[str, ...] = ("mfu", "compute_loss")
"""What the table `mfu` has in place of `compute`."""


def rows() -> list[tuple[str, int, str, str, str | None, str | None, bool, str | None, str, int | None, int]]:
    """`CATEGORIES` as plain rows, for the SQL table `categories`: with the place in `GIVEN_BACK`, from 1, and its own, from 0."""
    return [
        (
            c.name,
            c.priority,
            c.group,
            c.evidence.value,
            c.parent,
            c.headline.value if c.headline else None,
            c.comm,
            c.leaf_of,
            c.text,
            GIVEN_BACK.index(c.headline) + 1 if c.headline in GIVEN_BACK else None,
            place,
        )
        for place, c in enumerate(CATEGORIES)
    ]
