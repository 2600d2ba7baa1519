"""What `whatif` can change: each change as three ways in which the messages of an operation would run instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from pipeline.attribution.replay import Ints, Messages, wire_ns
from pipeline.attribution.replay import replay as run_messages
from pipeline.model.hardware import LINKS

GPU_POST_NS = 1_000
"""What a GPU spends on a message that it posts itself, serial; assumed (the value of the contract's worked example)."""
FP8_BYTES = Fraction(33, 64)
"""Bytes of a BF16 token in FP8 with a 4-byte scale for each 128 values: (128 + 4) / 256."""


@dataclass(frozen=True)
class Traffic:
    """The messages of one rank in one operation, and how they run.

    outstanding: limit on messages in flight, None for any number. staging_ns: time before the first post that the
    change adds (NVLink hops). overlapped: the operation hides behind compute.
    """

    messages: Messages
    beta_bytes_per_s: int
    rtt0_ns: int
    outstanding: int | None = None
    staging_ns: int = 0
    overlapped: bool = False

    @cached_property
    def finish_ns(self) -> int:
        """End of the last completion after the operation's start."""
        if len(self.messages) == 0:
            return 0
        done = run_messages(
            self.messages, beta_bytes_per_s=self.beta_bytes_per_s, rtt0_ns=self.rtt0_ns, outstanding=self.outstanding
        )
        return self.staging_ns + done.finish_ns


@dataclass(frozen=True)
class Part:
    """One rank's share of one operation: when it began and how long it was exposed, ns; its traffic; what was seen."""

    rank: int
    start_ns: int
    exposed_ns: int
    observed_ns: int
    traffic: Traffic
    off_cpu_ns: Ints
    gpus_per_node: int
    dispatch: bool


Bounds = tuple[Traffic, Traffic, Traffic]
"""A part's traffic under a change: pessimistic, expected, optimistic."""


@dataclass(frozen=True)
class Change:
    """A change that can be replayed. `apply` gives a part's traffic under it."""

    name: str
    text: str
    formula: str
    evidence: str
    apply: Callable[[Part], Bounds]
    applies: Callable[[Part], bool] = lambda part: len(part.traffic.messages) > 0


def _cpu(traffic: Traffic, **columns: Any) -> Traffic:
    return replace(traffic, messages=replace(traffic.messages, **columns))


def _gpu_initiated(part: Part) -> Bounds:
    free = _cpu(part.traffic, schedule_ns=0, wqe_ns=0, doorbell_ns=0)
    gpu = _cpu(free, doorbell_ns=GPU_POST_NS)
    serial = wire_ns(part.traffic.messages.column("bytes"), part.traffic.beta_bytes_per_s) + GPU_POST_NS
    # Nothing overlaps: each message's post and wire one after the other.
    alone = _cpu(free, doorbell_ns=serial, bytes=np.zeros(len(serial), np.int64))
    return replace(alone, outstanding=None), replace(gpu, outstanding=None), replace(free, outstanding=None)


def _pinned(part: Part) -> Bounds:
    schedule = part.traffic.messages.column("schedule_ns")
    long = np.where(part.off_cpu_ns >= 100_000, part.off_cpu_ns, 0)
    expected = _cpu(part.traffic, schedule_ns=schedule - part.off_cpu_ns)
    return _cpu(part.traffic, schedule_ns=schedule - long), expected, expected


def _more_proxies(part: Part) -> Bounds:
    messages = part.traffic.messages
    if part.traffic.outstanding is not None:
        return part.traffic, part.traffic, part.traffic  # the wait, not the proxy, is the bottleneck
    turn = np.arange(len(messages), dtype=np.int64)
    proxy = messages.column("proxy")
    half = _cpu(part.traffic, schedule_ns=messages.column("schedule_ns") // 2)
    return half, _cpu(part.traffic, proxy=proxy * 2 + turn % 2), _cpu(part.traffic, proxy=proxy * 4 + turn % 4)


def _merged(traffic: Traffic, factor: int) -> Traffic:
    """Each `factor` consecutive messages of a NIC and proxy become one that costs what one cost on average."""
    m = traffic.messages
    key = m.column("nic") * (int(m.column("proxy").max(initial=0)) + 1) + m.column("proxy")
    order = np.argsort(key, kind="stable")
    place = np.empty(len(m), np.int64)
    _, start, count = np.unique(key[order], return_index=True, return_counts=True)
    place[order] = np.arange(len(m)) - np.repeat(start, count)
    group = np.stack([key, place // factor])
    _, first, inverse = np.unique(group, axis=1, return_index=True, return_inverse=True)
    by_first = np.argsort(first, kind="stable")
    rank_of = np.empty(len(first), np.int64)
    rank_of[by_first] = np.arange(len(first))
    inverse = rank_of[np.ravel(inverse)]
    size = np.bincount(inverse)

    def mean(name: str) -> Ints:
        total = np.zeros(len(first), np.int64)
        np.add.at(total, inverse, m.column(name))
        result: Ints = total // size
        return result

    sent = np.zeros(len(first), np.int64)
    np.add.at(sent, inverse, m.column("bytes"))
    chosen = first[by_first]
    return replace(
        traffic,
        messages=Messages(
            bytes=sent,
            schedule_ns=mean("schedule_ns"),
            wqe_ns=mean("wqe_ns"),
            doorbell_ns=mean("doorbell_ns"),
            fetch_ns=m.column("fetch_ns")[chosen],
            excess_ns=mean("excess_ns"),
            proxy=m.column("proxy")[chosen],
            nic=m.column("nic")[chosen],
        ),
    )


def _two_hop(part: Part) -> Bounds:
    merged = _merged(part.traffic, max(1, part.gpus_per_node))
    nvlink = LINKS["nvlink4"]
    total = int(part.traffic.messages.column("bytes").sum())
    first = int(np.atleast_1d(np.asarray(merged.messages.bytes))[0])
    staged = replace(merged, staging_ns=nvlink.alpha_ns + int(wire_ns(first, nvlink.beta_bytes_per_s)))
    serial = replace(merged, staging_ns=nvlink.alpha_ns + int(wire_ns(total, nvlink.beta_bytes_per_s)))
    return serial, staged, merged


def _larger(part: Part) -> Bounds:
    return _merged(part.traffic, 2), _merged(part.traffic, 8), _merged(part.traffic, 64)


def _fire_and_forget(part: Part) -> Bounds:
    free = replace(part.traffic, outstanding=None)
    return replace(part.traffic, outstanding=2), free, free


def _fp8(part: Part) -> Bounds:
    size = part.traffic.messages.column("bytes")
    small = -(-size * FP8_BYTES.numerator // FP8_BYTES.denominator)
    shrunk = _cpu(part.traffic, bytes=small)
    return (shrunk, shrunk, shrunk) if part.dispatch else (part.traffic, part.traffic, part.traffic)


def _overlap(part: Part) -> Bounds:
    hidden = replace(part.traffic, overlapped=True)
    return hidden, hidden, hidden


CHANGES: dict[str, Change] = {
    change.name: change
    for change in (
        Change("gpu_initiated", "the GPU posts its messages itself (IBGDA, NCCL GIN)",
               "proxy time -> 1 us a message; optimistic: wire bound; pessimistic: 1 us + wire, serial", "assumed", _gpu_initiated),
        Change("pin_proxy", "proxy threads keep their cores", "runnable-but-not-running time -> 0; pessimistic: only slices of 0.1 ms and more",
               "inferred", _pinned, lambda part: bool(part.off_cpu_ns.sum() > 0)),
        Change("more_proxies", "two proxy threads a NIC (optimistic: four)", "messages in turn; pessimistic: only the loop time is halved",
               "modelled", _more_proxies),
        Change("two_hop", "aggregate over NVLink first, then one message a rail (two-hop, PXN)",
               "GPUs-per-node messages become one; NVLink staging before the first (pessimistic: before all)", "modelled", _two_hop),
        Change("larger_messages", "eight messages in one (pessimistic two, optimistic 64)", "same bytes, same cost a message", "modelled", _larger),
        Change("fire_and_forget", "post without waiting for each completion", "outstanding: 1 -> any number (pessimistic: 2)", "inferred",
               _fire_and_forget, lambda part: part.traffic.outstanding is not None),
        Change("fp8_dispatch", "dispatch tokens in FP8 with a scale for each 128 values", "bytes x 33/64 in dispatch operations", "modelled",
               _fp8, lambda part: part.dispatch and len(part.traffic.messages) > 0),
        Change("full_overlap", "communication wholly hidden behind compute", "exposed communication -> 0, not below the wire time", "modelled", _overlap),
    )
}  # fmt: skip
"""Every change by name, in the order in which several are applied together."""
