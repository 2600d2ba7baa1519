"""Serial resources, vectorised: FIFO servers, and a CPU proxy that posts one message after another.

All arrays are int64 ns. Nothing here loops over messages.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_FAR = np.int64(1) << np.int64(46)
"""Further apart than any two instants of a run (19 hours): keeps segments of one running maximum apart."""


def fifo(server: Ints, ready: Ints, service: Ints, tiebreak: Ints) -> tuple[Ints, Ints]:
    """Start and end of service of each job at its first-in-first-out server.

    start_k = max(ready_k, end_{k-1}), end_k = start_k + service_k, jobs of a server in order of (ready, tiebreak).
    Unrolled: end_k = C_k + max over j <= k of (ready_j - C_{j-1}), C the running sum of service.
    """
    if ready.size == 0:
        return ready.copy(), ready.copy()
    order = np.lexsort((tiebreak, ready, server))
    queue, at, work = server[order], ready[order], service[order]
    first = np.r_[True, queue[1:] != queue[:-1]]
    segment = np.cumsum(first) - 1
    total = np.cumsum(work)
    before = total - work
    before -= before[first][segment]
    base = int(at.min())
    slack = at - base - before + segment * _FAR
    start = np.maximum.accumulate(slack) - segment * _FAR + base + before
    begins = np.empty_like(ready)
    begins[order] = start
    return begins, begins + service


def running_max(values: Ints) -> Ints:
    """Running maximum along the last axis."""
    result: Ints = np.maximum.accumulate(values, axis=-1)
    return result


def serial_posts(first: Ints, busy: Ints, between: Ints, available: Ints | None) -> Ints:
    """When each post of a proxy begins: after the one before and the loop between, and not before it is available.

    first: [ranks], busy and between and available: [ranks, messages]; between[:, 0] is not used.
    """
    step = busy[:, :-1] + between[:, 1:]
    offset = np.concatenate([np.zeros((busy.shape[0], 1), np.int64), np.cumsum(step, axis=1)], axis=1)
    start = first[:, None] + np.zeros_like(offset)
    if available is not None:
        start = np.maximum(start, running_max(available - offset))
    begins: Ints = start + offset
    return begins


def next_at_or_after(grid: Ints, at: Ints, otherwise: Ints) -> Ints:
    """For each `at[r, k]`, the first instant of `grid[r, :]` (ascending) not before it, else `otherwise[r, k]`."""
    ranks, n = grid.shape
    base = int(min(grid.min(), at.min()))
    lane = (np.arange(ranks, dtype=np.int64) * _FAR)[:, None]
    flat = (grid - base + lane).ravel()
    found = np.searchsorted(flat, (at - base + lane).ravel(), side="left").reshape(at.shape)
    limit = (np.arange(1, ranks + 1, dtype=np.int64) * n)[:, None]
    inside = found < limit
    value = grid.ravel()[np.minimum(found, grid.size - 1)]
    result: Ints = np.where(inside, value, otherwise)
    return result
