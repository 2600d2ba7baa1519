"""Thresholds of the detectors: when a measured value becomes a finding. Data, and nowhere else.

SQL reads them as `threshold('detector', 'name')`. A detector's severity is `critical` from `critical` on, else `warning`.
Shares are percent of the wall time of the steps that statistics are made of.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """A limit: which detector, its name, its value, the unit, and why this value."""

    detector: str
    name: str
    value: float
    unit: str
    why: str


_SHARE = "below it a step's own noise is as large"
_GRAVE = "a tenth of the machine"

THRESHOLDS: tuple[Threshold, ...] = (
    Threshold("blocking_rtt", "share", 2, "%", _SHARE),
    Threshold("blocking_rtt", "critical", 10, "%", _GRAVE),
    Threshold("control_plane_bound", "share", 5, "%", _SHARE),
    Threshold("control_plane_bound", "of_communication", 20, "%", "else something else bounds communication"),
    Threshold("control_plane_bound", "critical", 10, "%", _GRAVE),
    Threshold("proxy_starved", "slice_ns", 100_000, "ns", "an interrupt or a tick is shorter"),
    Threshold("proxy_starved", "share", 2, "%", _SHARE),
    Threshold("proxy_starved", "critical", 10, "%", _GRAVE),
    Threshold("straggler", "share", 2, "%", _SHARE),
    Threshold("straggler", "persistence", 25, "% of steps", "a rank late once is an event, not a straggler"),
    Threshold("straggler", "critical", 10, "%", _GRAVE),
    Threshold("incast", "share", 2, "%", _SHARE),
    Threshold("incast", "concentration", 2, "x its share of messages", "even traffic has 1"),
    Threshold("incast", "critical", 10, "%", _GRAVE),
    Threshold("qp_thrash", "share", 2, "%", _SHARE),
    Threshold("qp_thrash", "queue_pairs", 128, "per NIC", "fewer fit into any NIC's context cache"),
    Threshold("qp_thrash", "concentration", 2, "x its share of messages", "one receiver that stands out is incast"),
    Threshold("nic_imbalance", "ratio", 1.5, "x the node's mean", "even rails are within a few percent"),
    Threshold("nic_imbalance", "bytes", 1_000_000, "bytes", "less is no traffic"),
    Threshold("gpu_initiated", "bytes", 1_000_000, "bytes", "less is no traffic"),
    Threshold("gpu_initiated", "posted", 2, "% of port bytes", "setup traffic is posted by the CPU in any case"),
    Threshold("unseen_traffic", "ratio", 2, "%", "headers are counted in; retransmissions stay below"),
    Threshold("launch_bound", "gap_ns", 1_000_000, "ns", "a longer gap is a stall, not a slow launch"),
    Threshold("launch_bound", "share", 5, "%", _SHARE),
    Threshold("launch_bound", "critical", 20, "%", "a fifth of the machine"),
    Threshold("host_stall", "gap_ns", 1_000_000, "ns", "a shorter gap is a slow launch"),
    Threshold("host_stall", "share", 2, "%", _SHARE),
    Threshold("host_stall", "critical", 20, "%", "a fifth of the machine"),
    Threshold("data_bound", "share", 2, "%", _SHARE),
    Threshold("data_bound", "critical", 10, "%", _GRAVE),
    Threshold("host_sync_bound", "share", 5, "%", _SHARE),
    Threshold("tiny_sync_copies", "bytes", 4_096, "bytes", "a scalar or a flag"),
    Threshold("tiny_sync_copies", "count", 50, "in a step", "a loss value or two are normal"),
    Threshold("tiny_sync_copies", "share", 5, "% of the step", _SHARE),
    Threshold("sm_tax", "slowdown", 1.1, "x", "kernel durations repeat within a few percent"),
    Threshold("sm_tax", "share", 2, "%", _SHARE),
    Threshold("sm_tax", "steps", 64, "steps of a rank", "medians over more change nothing and cost time"),
    Threshold("sm_tax", "samples", 8, "kernels of a name, each way", "fewer have no median"),
    Threshold("environment_unknown", "distance", 3, "edits", "a misspelling; farther names are another program's"),
    Threshold(
        "environment_misread", "queue_pairs", 32, "per connection", "more is a depth by mistake; NCCL allows 128"
    ),
    Threshold("retransmission", "count", 1, "events", "a healthy fabric has none in a capture"),
)


ORDER: tuple[str, ...] = (
    "hang",
    "error_completions",
    "missing_ranks",
    "unaligned_clocks",
    "gpu_initiated_fallback",
    "proxy_starved",
    "blocking_rtt",
    "incast",
    "qp_thrash",
    "nic_imbalance",
    "retransmission",
    "data_bound",
    "launch_bound",
    "host_stall",
    "tiny_sync_copies",
    "host_sync_bound",
    "sm_tax",
    "control_plane_bound",
    "straggler",
    "far_nic",
    "environment_misread",
    "environment_unknown",
    "counters_of_other_link",
    "lost_events",
    "gpu_initiated",
    "unseen_traffic",
)
"""Causes before what they cause: a starved proxy makes its rank a straggler, not the other way round."""


def place(code: str) -> int:
    """Place of a detector in the order of explanation, 0 first; an unlisted one comes last."""
    return ORDER.index(code) if code in ORDER else len(ORDER)


def rows() -> list[tuple[str, str, float, str, str]]:
    """`THRESHOLDS` as plain rows, for the SQL table `thresholds`."""
    return [(t.detector, t.name, t.value, t.unit, t.why) for t in THRESHOLDS]
