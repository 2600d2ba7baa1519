"""Whose rows an input's are: its node, the ranks of its processes, and the map from its clock to UTC."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipeline.clocks.anchors import ClockMap, clock_map
from pipeline.ingest.inspect import Inspected
from pipeline.model.capture import Anchor, Clock
from pipeline.model.ranks import GpuProcess, Ranking, assign_ranks
from pipeline.model.run import RunConfig

READER_VERSION = 2
"""Raised when a source or the schema changes so that what is in a lake must be read again."""


@dataclass(frozen=True)
class Identified:
    """An input as a capture of the run.

    ranks: by Process.key, or by pid where the format lists no processes. clock: onto the node's UTC; None where no
    anchor tells. rankless: it shows GPU processes, and no rule gives any of them a rank. fingerprint: equal where
    reading the same content gives the same rows.
    """

    inspected: Inspected
    capture_id: str
    node: str
    ranks: Mapping[int, int]
    clock: ClockMap | None
    rankless: bool
    fingerprint: str

    @property
    def name(self) -> str:
        return self.inspected.input.name


def identify(
    inspected: Sequence[Inspected], anchors: Mapping[str, Sequence[Anchor]], config: RunConfig
) -> tuple[list[Identified], Ranking]:
    """All inputs of a run, identified together: each may say what another one lacks. anchors: by their file's name.

    Raises UsageError where two captures claim one rank, or where a rule of run.toml gives a process none.
    """
    nodes = _nodes(inspected, anchors)
    ranking = assign_ranks(list(gpu_processes(inspected, nodes)), config.ranks)
    clocks = _clocks(inspected, nodes, anchors)
    captures = []
    for each in inspected:
        name = each.input.name
        node, clock = nodes[name], clocks[name]
        ranks = _ranks(each, ranking, node, clock)
        captures.append(
            Identified(
                each,
                capture_id_of(each.sha256, name),
                node,
                ranks,
                clock,
                _rankless(each, ranking),
                _fingerprint(ranks, node, clock, config) if each.usable else f"{READER_VERSION} unusable {each.reason}",
            )
        )
    return captures, ranking


def gpu_processes(inspected: Sequence[Inspected], nodes: Mapping[str, str]) -> Iterator[GpuProcess]:
    """The processes with GPU work in what can be read. nodes: by the input's name."""
    for each in inspected:
        if each.usable and each.capture is not None:
            for process in each.capture.processes:
                if process.gpus:
                    yield GpuProcess(each.input.name, nodes[each.input.name], process)


def capture_id_of(sha256: str, name: str) -> str:
    """First 16 hex digits of the SHA-256 over content hash and name."""
    return hashlib.sha256(f"{sha256}\0{name}".encode()).hexdigest()[:16]


def reading(config: RunConfig) -> dict[str, Any]:
    """What of run.toml decides how captures are read."""
    dump = config.dump()
    return {
        "ranks": dump.get("ranks"),
        "patterns": dump.get("comm", {}).get("patterns"),
        "nics": dump.get("network", {}).get("nics"),
        "link_layer": dump.get("network", {}).get("link_layer"),
    }


def _nodes(inspected: Sequence[Inspected], anchors: Mapping[str, Sequence[Anchor]]) -> dict[str, str]:
    """Node of each input: its own word, else that of its folder's other files, else the folder's name."""
    hosts: dict[str, set[str]] = defaultdict(set)
    for each in inspected:
        if each.capture is not None and each.capture.host:
            hosts[_folder(each.input.name)].add(each.capture.host)
    for name, readings in anchors.items():
        hosts[_folder(name)] |= {anchor.node for anchor in readings if anchor.node}
    nodes = {}
    for each in inspected:
        if each.capture is not None and each.capture.host:
            nodes[each.input.name] = each.capture.host
            continue
        folder = _folder(each.input.name)
        said = hosts.get(folder) or (hosts.get(_folder(folder)) if "/" in folder else None)
        fallback = folder.rsplit("/", 1)[-1] or each.input.path.parent.name or "node"
        nodes[each.input.name] = next(iter(said)) if said and len(said) == 1 else fallback
    return nodes


def _clocks(
    inspected: Sequence[Inspected], nodes: Mapping[str, str], anchors: Mapping[str, Sequence[Anchor]]
) -> dict[str, ClockMap | None]:
    """The map of each input onto its node's UTC, by its own anchors, else by the nearest that speak of it."""
    by_node: dict[str, list[Anchor]] = defaultdict(list)
    by_folder: dict[str, list[Anchor]] = defaultdict(list)
    for name, readings in anchors.items():
        for anchor in readings:
            if anchor.node:
                by_node[anchor.node].append(anchor)
            else:
                by_folder[_folder(name)].append(anchor)
    clocks: dict[str, ClockMap | None] = {}
    for each in inspected:
        if each.capture is None:
            clocks[each.input.name] = None
            continue
        folder = _folder(each.input.name)
        nearest = (
            each.capture.anchors
            or by_folder.get(folder)
            or by_node.get(nodes[each.input.name])
            or (by_folder.get(_folder(folder)) if "/" in folder else None)
            or ()
        )
        clocks[each.input.name] = clock_map(nearest, each.capture.clock)
    return clocks


def _ranks(each: Inspected, ranking: Ranking, node: str, clock: ClockMap | None) -> dict[int, int]:
    """Process.key → rank in one capture. One that can't be put on the node's clock gets no ranks."""
    capture, name = each.capture, each.input.name
    if capture is None or (clock is None and capture.clock in (Clock.BOOTTIME, Clock.MONOTONIC)):
        return {}
    if not capture.processes:
        # A format that lists no processes: its rows are known by pid.
        return {pid: rank for (host, pid), rank in ranking.by_pid.items() if host == node}
    ranks = {}
    for process in capture.processes:
        rank = ranking.ranks.get((name, process.key))
        if rank is None and not process.gpus:
            rank = ranking.rank_of(process, node, name)
        if rank is not None:
            ranks[process.key] = rank
    return ranks


def _rankless(each: Inspected, ranking: Ranking) -> bool:
    processes = [] if each.capture is None else [process for process in each.capture.processes if process.gpus]
    return bool(processes) and not any((each.input.name, process.key) in ranking.ranks for process in processes)


def _fingerprint(ranks: Mapping[int, int], node: str, clock: ClockMap | None, config: RunConfig) -> str:
    """Equal for equal rows: what, beside the content, decides what reading a capture gives."""
    # Of [ranks] only the outcome counts.
    settings = {name: value for name, value in reading(config).items() if name != "ranks"}
    text = repr((READER_VERSION, sorted(ranks.items()), node, clock, sorted(settings.items(), key=str)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _folder(name: str) -> str:
    return name.rsplit("/", 1)[0] if "/" in name else ""
