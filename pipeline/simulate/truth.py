"""The true account of a played run: ns per (rank, step, category), from the simulator's own intervals.

Written for the simulator alone; nothing of the pipeline's attribution is used, so that each can be held against
the other. The categories and their order are those of `pipeline.model.categories`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.model.categories import CTL_CPU_LEAVES, SWEPT
from pipeline.simulate.cluster import CODES, Played
from pipeline.simulate.network import Ints

_UNCLAIMED_IN_A_LOSS = (
    "rdma_transfer",
    "ctl_cpu",
    "ctl_fetch",
    "blocking_rtt",
    "net_latency",
    "net_excess",
    "ctl_notify",
    "wait_credit",
    "wait_sender",
)
"""Orders 3 to 8 of DESIGN §4."""


@dataclass(frozen=True)
class Truth:
    """Rows of truth.parquet (rank, step, category, true_ns, every category of a step, zeros left out), the steps'
    edges [ranks, steps + 1] in true time, and the waits: (victim, culprit, op, step, start, end)."""

    rank: Ints
    step: Ints
    category: list[str]
    true_ns: Ints
    edges: Ints
    waits: dict[str, Ints]


def account(played: Played) -> Truth:
    """Sweep each rank's intervals in the order of the categories, step by step. Exact integers."""
    edges = step_edges(played)
    intervals = _Intervals(played)
    rows: list[tuple[int, int, str, int]] = []
    for rank in range(played.ranks):
        rows += _sweep(rank, edges[rank], intervals)
    ops = played.ops
    late = ops["last_arrival"] > ops["arrival"]
    waits = {name: ops[name][late] for name in ("rank", "culprit", "op", "step", "arrival")}
    waits["end"] = np.minimum(ops["last_arrival"], ops["end"])[late]
    return Truth(
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], np.int64),
        [row[2] for row in rows],
        np.array([row[3] for row in rows], np.int64),
        edges,
        waits,
    )


def step_edges(played: Played) -> Ints:
    """[ranks, steps + 1]: where steps begin, cut on the GPU's side as DESIGN §4 says; the last edge is the end."""
    ranks, steps = played.ranks, played.steps
    gpu, nvtx = played.gpu, played.nvtx
    cell = gpu["rank"] * steps + gpu["step"]
    far = np.iinfo(np.int64).max
    flat_first, flat_last = np.full(ranks * steps, far), np.zeros(ranks * steps, np.int64)
    np.minimum.at(flat_first, cell, gpu["start"])
    np.maximum.at(flat_last, cell, gpu["end"])
    first, last = flat_first.reshape(ranks, steps), flat_last.reshape(ranks, steps)
    texts = nvtx["text"]
    range_start, range_end = np.zeros((ranks, steps), np.int64), np.zeros((ranks, steps), np.int64)
    for step in range(steps):
        for prefix in ("step", "decode_step"):
            found = texts == f"{prefix}_{step}"
            range_start[nvtx["rank"][found], step] = nvtx["start"][found]
            range_end[nvtx["rank"][found], step] = nvtx["end"][found]
    edges = np.zeros((ranks, steps + 1), np.int64)
    edges[:, 0] = np.minimum(first[:, 0], range_start[:, 0])
    edges[:, 1:-1] = np.minimum(first[:, 1:], np.maximum(range_start[:, 1:], last[:, :-1]))
    edges[:, -1] = np.maximum(last[:, -1], range_end[:, -1])
    return edges


class _Intervals:
    """Intervals of each rank by category, before order decides."""

    def __init__(self, played: Played) -> None:
        self._by: dict[str, tuple[Ints, Ints, Ints]] = {}
        gpu, api = played.gpu, played.api
        for category, what in (("compute", "compute"), ("memcpy", "copy")):
            self._add(category, gpu, gpu["what"] == what)
        truth = played.truth
        categories = truth["category"]
        for category, code in CODES.items():
            found = categories == code
            if found.any():
                self._add(category, truth, found)
        self._dependency(played)
        self._add("host_sync", api, np.char.find(api["name"].astype(str), "Synchronize") >= 0)
        self._add("host_data", played.nvtx, np.char.startswith(played.nvtx["text"].astype(str), "DataLoader"))
        self._add("host_other", played.os, np.ones(len(played.os), bool))
        self._losses(played)
        self.ops = _sorted(played.ops["rank"], played.ops["arrival"], played.ops["end"])
        self.end = played.end_ns

    def _add(self, category: str, columns: Any, keep: Any) -> None:
        self._by[category] = _sorted(columns["rank"][keep], columns["start"][keep], columns["end"][keep])

    def _losses(self, played: Played) -> None:
        """A loss on a node is a gap for each of its ranks, where nothing of the network's account is claimed."""
        g = played.gpus_per_node
        rows = [(n * g + k, *x.known) for x in played.losses for n in (x.node,) for k in range(g)]
        rank, start, end = np.array(rows, np.int64).reshape(-1, 3).T
        self._by["trace_gap"] = _sorted(rank, start, end)

    def _dependency(self, played: Played) -> None:
        """Before each GPU operation: from its launch call's start, or the end of all before it, to its start."""
        gpu = played.gpu
        order = np.lexsort((gpu["end"], gpu["start"], gpu["rank"]))
        rank, start, end = gpu["rank"][order], gpu["start"][order], gpu["end"][order]
        lane = rank * (np.int64(1) << np.int64(46))
        so_far = np.maximum.accumulate(end + lane) - lane
        before = np.r_[np.int64(0), so_far[:-1]]
        before[np.r_[True, rank[1:] != rank[:-1]]] = 0
        begin = np.maximum(gpu["launch_start"][order], before)
        keep = begin < start
        self._by["gpu_dependency"] = _sorted(rank[keep], begin[keep], start[keep])

    def of(self, rank: int, category: str) -> tuple[Ints, Ints]:
        """Union of a rank's intervals of a category: starts and ends, ascending and disjoint."""
        if category == "host_launch":
            return np.zeros(1, np.int64), np.array([self.end + 1], np.int64)
        if category not in self._by:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        owner, start, end = self._by[category]
        lo, hi = np.searchsorted(owner, (rank, rank + 1))
        return _union(start[lo:hi], end[lo:hi])


def _sorted(rank: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    order = np.lexsort((end, start, rank))
    return rank[order], start[order], end[order]


def _union(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    if start.size == 0:
        return start, end
    reach = np.maximum.accumulate(end)
    opens = np.r_[True, start[1:] > reach[:-1]]
    return start[opens], reach[np.r_[opens[1:], True]]


def _covers(points: Ints, start: Ints, end: Ints) -> np.ndarray[Any, Any]:
    """Which of the elementary segments [points_i, points_i+1) lie in the union of disjoint [start, end)."""
    change = np.zeros(points.size, np.int64)
    np.add.at(change, np.searchsorted(points, start), 1)
    np.add.at(change, np.searchsorted(points, end), -1)
    return np.cumsum(change)[:-1] > 0


def _sweep(rank: int, edges: Ints, intervals: _Intervals) -> list[tuple[int, int, str, int]]:
    leaves = {leaf: intervals.of(rank, leaf) for leaf in CTL_CPU_LEAVES}
    united = _union(*_by_start(list(leaves.values())))
    spans = {c: united if c == "ctl_cpu" else intervals.of(rank, c) for c in SWEPT}
    lo, hi = int(edges[0]), int(edges[-1])
    clipped = {c: (np.clip(s, lo, hi), np.clip(e, lo, hi)) for c, (s, e) in spans.items()}
    owner, op_start, op_end = intervals.ops
    mine = slice(*np.searchsorted(owner, (rank, rank + 1)))
    op_start, op_end = np.clip(op_start[mine], lo, hi), np.clip(op_end[mine], lo, hi)
    parts = [edges, op_start, op_end]
    parts += [side for pair in clipped.values() for side in pair]
    parts += [np.clip(side, lo, hi) for pair in leaves.values() for side in pair]
    points = np.unique(np.concatenate(parts))
    length = np.diff(points)
    step = np.searchsorted(edges, points[:-1], side="right") - 1
    category = np.full(length.size, SWEPT.index("idle_other"))
    open_ = np.ones(length.size, bool)
    lost = _covers(points, *clipped["trace_gap"])
    in_operation = _covers(points, *_union(op_start, op_end))
    for index, name in enumerate(SWEPT):
        held = open_ & _covers(points, *clipped[name])
        if name in _UNCLAIMED_IN_A_LOSS:
            held &= ~lost
        if name == "trace_gap":
            held &= in_operation  # exposed communication alone
        category[held] = index
        open_ &= ~held
    n = len(SWEPT)
    flat = np.zeros((edges.size - 1) * n, np.int64)
    np.add.at(flat, step * n + category, length)
    total = flat.reshape(-1, n)

    # ctl_cpu is divided over its leaves by their occupancy in the operation's exposed window.
    op = np.searchsorted(op_start, points[:-1], side="right") - 1
    inside = (op >= 0) & (points[:-1] < op_end[np.maximum(op, 0)])
    exposed = (
        inside & ~lost & ~np.isin(category, [SWEPT.index(c) for c in ("compute", "wait_straggler", "wait_pipeline")])
    )
    key = step * (op_start.size + 1) + op + 1
    shares = {}
    for leaf, (start, end) in leaves.items():
        held = exposed & _covers(points, np.clip(start, lo, hi), np.clip(end, lo, hi))
        shares[leaf] = np.bincount(key[held], length[held], minlength=(edges.size - 1) * (op_start.size + 1)).astype(
            np.int64
        )
    is_ctl = category == SWEPT.index("ctl_cpu")
    to_divide = np.bincount(key[is_ctl], length[is_ctl], minlength=(edges.size - 1) * (op_start.size + 1)).astype(
        np.int64
    )
    divided = np.zeros((edges.size - 1, len(CTL_CPU_LEAVES)), np.int64)
    for cell in np.flatnonzero(to_divide):
        parts_ = divide(int(to_divide[cell]), [int(shares[leaf][cell]) for leaf in CTL_CPU_LEAVES])
        divided[cell // (op_start.size + 1)] += parts_

    rows = []
    for k in range(edges.size - 1):
        for index, name in enumerate(SWEPT):
            if name == "ctl_cpu":
                rows += [(rank, k, leaf, int(v)) for leaf, v in zip(CTL_CPU_LEAVES, divided[k], strict=True) if v]
            elif total[k, index]:
                rows.append((rank, k, name, int(total[k, index])))
    return rows


def _by_start(pairs: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    start = np.concatenate([pair[0] for pair in pairs])
    end = np.concatenate([pair[1] for pair in pairs])
    order = np.lexsort((end, start))
    return start[order], end[order]


def divide(total: int, weights: list[int]) -> list[int]:
    """`total` in proportion to `weights`, integers that add up to it: largest remainder, ties to the first."""
    whole = sum(weights)
    if whole == 0:
        return [total, *([0] * (len(weights) - 1))]
    shares = [total * w // whole for w in weights]
    by_remainder = sorted(range(len(weights)), key=lambda k: (-(total * weights[k] % whole), k))
    for k in by_remainder[: total - sum(shares)]:
        shares[k] += 1
    return shares
