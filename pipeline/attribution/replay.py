"""Replay of messages through proxies and NICs: when each would be posted, served and complete under changed phases.

A proxy is a serial resource: it takes each message when it is ready, and spends its schedule, work request and doorbell
time on it. A NIC serves in the order of the doorbells, ceil(bytes / beta) each, after fetching the request. A message
completes rtt0 (and its own excess, if any) after its service. The recursions max(arrival, end before) + service unroll to
a running maximum over cumulated service times, so nothing loops over messages, and integers stay exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

Ints = NDArray[np.int64]


def _zero() -> Ints:
    return np.zeros(1, np.int64)


@dataclass(frozen=True)
class Messages:
    """Messages in the order in which their proxies take them; int64 arrays of one length, or scalars for all.

    ready_ns: instant from which the proxy may take it. The CPU's phases are durations in ns: schedule_ns (waiting for
    a core, polling), wqe_ns and doorbell_ns (post_send as a whole goes into one of them). fetch_ns: the NIC fetches
    the work request. excess_ns: in flight beyond wire and base latency. proxy, nic: which of them, small integers.
    """

    bytes: ArrayLike
    ready_ns: ArrayLike = 0
    schedule_ns: ArrayLike = 0
    wqe_ns: ArrayLike = 0
    doorbell_ns: ArrayLike = 0
    fetch_ns: ArrayLike = 0
    excess_ns: ArrayLike = 0
    proxy: ArrayLike = 0
    nic: ArrayLike = 0

    def column(self, name: str) -> Ints:
        """A column as int64 of full length."""
        values = np.asarray(getattr(self, name), np.int64)
        n = len(self)
        return values if values.shape == (n,) else np.broadcast_to(values, (n,))

    def __len__(self) -> int:
        return int(np.atleast_1d(np.asarray(self.bytes)).shape[0])

    def without(self, *phases: str) -> Messages:
        """The same messages with these phases taken out: schedule_ns, wqe_ns, doorbell_ns, fetch_ns, excess_ns, ready_ns."""
        return replace(self, **dict.fromkeys(phases, 0))


@dataclass(frozen=True)
class Replay:
    """Instants of each message, ns, in the order of `Messages`."""

    exit_ns: Ints = field(default_factory=_zero)
    service_start_ns: Ints = field(default_factory=_zero)
    service_end_ns: Ints = field(default_factory=_zero)
    complete_ns: Ints = field(default_factory=_zero)

    @property
    def finish_ns(self) -> int:
        """The last completion; 0 without messages."""
        return int(self.complete_ns.max(initial=0))


def wire_ns(size_bytes: ArrayLike, beta_bytes_per_s: int) -> Ints:
    """ceil(bytes / beta) in ns, exact wherever the result fits (quotient and remainder apart: no product overflows)."""
    size = np.asarray(size_bytes, np.int64)
    if beta_bytes_per_s <= 0:
        raise ValueError("beta must be positive")
    whole, rest = np.divmod(size, beta_bytes_per_s)
    high, low = np.divmod(rest, 1 << 20)
    # rest · 10⁹ in two parts of 20 bits' difference: beta below 2^42 (4.4 TB/s) keeps both within int64.
    if beta_bytes_per_s >= 1 << 42:
        raise ValueError("beta is above 4.4 TB/s: not one way of a link, in bytes per second")
    quotient, carry = np.divmod(high * 10**9, beta_bytes_per_s)
    scaled, remainder = np.divmod(carry << 20, beta_bytes_per_s)
    tail = remainder + low * 10**9
    result: Ints = whole * 10**9 + (quotient << 20) + scaled + -(-tail // beta_bytes_per_s)
    return result


def replay(
    messages: Messages,
    *,
    beta_bytes_per_s: int,
    rtt0_ns: int,
    outstanding: int | None = None,
) -> Replay:
    """Run the messages. outstanding: how many of a proxy's may be in flight at once (None: any number).

    With a limit, message k of a proxy is taken once message k - limit of it is complete; then each NIC must belong to
    one proxy and each proxy to one NIC (ValueError), or the order at the NIC depends on the outcome.
    """
    if outstanding is not None and outstanding < 1:
        raise ValueError("at least one message must be outstanding")
    n = len(messages)
    result = Replay(*(np.zeros(n, np.int64) for _ in range(4)))
    if n == 0:
        return result
    proxy, nic = messages.column("proxy"), messages.column("nic")
    cpu = messages.column("schedule_ns") + messages.column("wqe_ns") + messages.column("doorbell_ns")
    wire = wire_ns(messages.column("bytes"), beta_bytes_per_s)
    ready, fetch = messages.column("ready_ns"), messages.column("fetch_ns")
    after = rtt0_ns + messages.column("excess_ns")
    if outstanding is None:
        for rows in _groups(proxy):
            result.exit_ns[rows] = _serve(ready[rows], cpu[rows])
        for rows in _groups(nic):
            order = rows[np.argsort(result.exit_ns[rows], kind="stable")]
            result.service_end_ns[order] = _serve(result.exit_ns[order] + fetch[order], wire[order])
    else:
        pairs = np.unique(np.stack([proxy, nic]), axis=1)
        if any(len(np.unique(side)) != pairs.shape[1] for side in pairs):
            raise ValueError("with a limit, each proxy needs a NIC of its own")
        for rows in _groups(proxy):
            ends = _limited(ready[rows], cpu[rows], fetch[rows], wire[rows], after[rows], outstanding)
            result.exit_ns[rows], result.service_end_ns[rows] = ends
    result.service_start_ns[:] = result.service_end_ns - wire
    result.complete_ns[:] = result.service_end_ns + after
    return result


def _groups(key: Ints) -> Sequence[NDArray[np.intp]]:
    """Row numbers of each group, in order."""
    if key.min() == key.max():
        return [np.arange(len(key))]
    order = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.diff(key[order])) + 1
    return np.split(order, edges)


def _serve(arrival: Ints, service: Ints, free_at: int | None = None) -> Ints:
    """Ends of FIFO service e_k = max(arrival_k, e_{k-1}) + service_k, with e_{-1} = free_at."""
    through = np.cumsum(service)
    start = np.maximum.accumulate(arrival - (through - service))
    if free_at is not None:
        start = np.maximum(start, free_at)
    return through + start


def _limited(ready: Ints, cpu: Ints, fetch: Ints, wire: Ints, after: Ints, outstanding: int) -> tuple[Ints, Ints]:
    """Exit and end of service of one proxy on one NIC with a limit on messages in flight.

    With one outstanding nothing overlaps: one serial resource. Else a block of `outstanding` messages depends on
    completions of the block before alone, so blocks are computed one after the other, each as a whole.
    """
    if outstanding == 1:
        whole = _serve(ready, cpu + fetch + wire + after)
        end = whole - after
        return end - wire - fetch, end
    exit_ns, end_ns = np.zeros_like(ready), np.zeros_like(ready)
    cpu_free = wire_free = None
    for first in range(0, len(ready), outstanding):
        block = slice(first, first + outstanding)
        may_start = ready[block]
        if first:
            before = slice(first - outstanding, first - outstanding + len(may_start))
            may_start = np.maximum(may_start, end_ns[before] + after[before])
        exit_ns[block] = _serve(may_start, cpu[block], cpu_free)
        end_ns[block] = _serve(exit_ns[block] + fetch[block], wire[block], wire_free)
        cpu_free, wire_free = int(exit_ns[block][-1]), int(end_ns[block][-1])
    return exit_ns, end_ns
