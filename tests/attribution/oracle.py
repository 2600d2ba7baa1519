"""The timeline, nanosecond by nanosecond, written from the specification for clarity. Shares no code with SQL.

Events are dicts with the columns of the lake. Everything loops over every instant: small ranges only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Held = tuple[str, str]
"""A category and its evidence."""

ORDER = [
    "compute",
    "wait_straggler",
    "wait_pipeline",
    "rdma_transfer",
    "ctl_cpu",
    "ctl_fetch",
    "blocking_rtt",
    "net_latency",
    "net_excess",
    "ctl_notify",
    "wait_credit",
    "wait_sender",
    "trace_gap",
    "nvlink_transfer",
    "comm_unattributed",
    "memcpy",
    "gpu_dependency",
    "host_sync",
    "host_data",
    "host_other",
    "host_launch",
    "idle_other",
]
LEVELS = ["measured_nsys", "measured_ebpf", "measured_profiler", "inferred", "modelled", "assumed"]
NETWORK = ORDER[3:12]
"""Orders 3 to 8 of the specification: what a loss of eBPF events takes away."""
PARENTED = {*ORDER[1:12], "nvlink_transfer"}
"""Finer names of comm_unattributed."""
HOST = ORDER[16:21]
"""Finer names of idle_other."""


@dataclass
class Trace:
    """What was recorded of one rank."""

    ops: list[Row]
    steps: list[Row]
    api: list[Row] = field(default_factory=list)
    data: list[Row] = field(default_factory=list)
    os_calls: list[Row] = field(default_factory=list)
    states: list[Row] = field(default_factory=list)
    losses: list[Row] = field(default_factory=list)
    candidates: list[Row] = field(default_factory=list)


def covers(row: Row, at: int) -> bool:
    return bool(row["start_ns"] <= at < row["end_ns"])


def cut_steps(trace: Trace) -> list[tuple[int, int, int]]:
    """(number, start, end) of each step: start = min(F, max(N, L of the range before))."""
    cuts: list[int] = []
    last_end: int | None = None
    for number, step in enumerate(trace.steps):
        inside = [op for op in trace.ops if op["launch_start_ns"] is not None and covers(step, op["launch_start_ns"])]
        start = step["start_ns"] if last_end is None else max(step["start_ns"], last_end)
        if inside:
            start = min(start, min(op["start_ns"] for op in inside))
        cuts.append(max([start, *cuts[-1:]]))
        if inside:
            last_end = max(op["end_ns"] for op in inside)
        if number == len(trace.steps) - 1:
            ends = [step["end_ns"], cuts[-1], *(op["end_ns"] for op in inside)]
            cuts.append(max(ends))
    return [(number, cuts[number], cuts[number + 1]) for number in range(len(trace.steps))]


def holding(trace: Trace, at: int) -> set[Held]:
    """Everything that holds at an instant."""
    resident = {op["op_class"] for op in trace.ops if covers(op, at)}
    held: set[Held] = set()
    if "compute" in resident:
        held.add(("compute", "measured_nsys"))
    if "copy" in resident:
        held.add(("memcpy", "measured_nsys"))
    if "comm" in resident:
        held.add(("comm_unattributed", "measured_nsys"))
        held |= {(c["category"], c["evidence"]) for c in trace.candidates if covers(c, at)}
        if any(loss["source"] == "ebpf" and covers(loss, at) for loss in trace.losses):
            held = {(category, level) for category, level in held if category not in NETWORK}
            held.add(("trace_gap", "measured_ebpf"))
    if resident:
        return held
    if any(loss["source"] == "nsys" and covers(loss, at) for loss in trace.losses):
        return {("trace_gap", "measured_nsys")}
    return {(category, "measured_nsys") for category in idle(trace, at)}


def idle(trace: Trace, at: int) -> set[str]:
    """What holds while the GPU is idle: did the next operation's launch start, else what does its thread do?"""
    after = [op for op in trace.ops if op["start_ns"] > at]
    if after:
        first = min(op["start_ns"] for op in after)
        known = [op for op in after if op["start_ns"] == first and op["launch_start_ns"] is not None]
        if not known:
            return {"idle_other"}
        following = min(known, key=lambda op: (op["launch_start_ns"], op["launch_tid"]))
        if following["launch_start_ns"] <= at:
            return {"gpu_dependency"}
        tid = following["launch_tid"]
    else:
        launched = [op for op in trace.ops if op["launch_start_ns"] is not None]
        if not launched:
            return {"idle_other"}
        tid = max((op["launch_start_ns"], op["launch_tid"]) for op in launched)[1]

    def inside(rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row["tid"] == tid and covers(row, at)]

    held = set()
    if any(call["name"] in ("cudaDeviceSynchronize", "cudaMemcpy") for call in inside(trace.api)):
        held.add("host_sync")
    if inside(trace.data) or any(call["name"] == "read" for call in inside(trace.os_calls)):
        held.add("host_data")
    if any(call["name"] != "read" for call in inside(trace.os_calls)) or any(
        state["state"] != "running" for state in inside(trace.states)
    ):
        held.add("host_other")
    return held or {"host_launch"}


def winner(held: set[Held]) -> Held:
    return min(held, key=lambda one: (ORDER.index(one[0]), LEVELS.index(one[1])))


def alone(one: Held, held: set[Held]) -> bool:
    """Nothing else holds; a coarser name of the same, and weaker evidence of it, is nothing else."""
    category, _ = one
    kin = {category}
    if category in PARENTED or category == "trace_gap":
        kin |= {"comm_unattributed"} if category != "trace_gap" else set()
    if category in HOST:
        kin.add("idle_other")
    return one == winner(held) and all(other in kin for other, _ in held)


def instants(trace: Trace) -> Iterator[tuple[int, int, set[Held]]]:
    """(step, instant, what holds) for every instant of every step."""
    for number, start, end in cut_steps(trace):
        for at in range(start, end):
            yield number, at, holding(trace, at)


def breakdown(trace: Trace) -> dict[tuple[int, str, str], tuple[int, int, int]]:
    """(step, category, evidence) → attributed, exclusive, inclusive ns; ctl_cpu as a whole."""
    attributed: Counter[tuple[int, str, str]] = Counter()
    exclusive: Counter[tuple[int, str, str]] = Counter()
    inclusive: Counter[tuple[int, str, str]] = Counter()
    for step, _, held in instants(trace):
        attributed[(step, *winner(held))] += 1
        for one in held:
            inclusive[(step, *one)] += 1
            exclusive[(step, *one)] += alone(one, held)
    return {key: (attributed[key], exclusive[key], inclusive[key]) for key in sorted(inclusive)}


def segments(trace: Trace) -> list[tuple[int, int, int, str, str]]:
    """(step, start, end, category, evidence), neighbours of a step joined."""
    found: list[tuple[int, int, int, str, str]] = []
    for step, at, held in instants(trace):
        category, evidence = winner(held)
        if found and found[-1][0] == step and found[-1][2] == at and found[-1][3:] == (category, evidence):
            found[-1] = (step, found[-1][1], at + 1, category, evidence)
        else:
            found.append((step, at, at + 1, category, evidence))
    return found
