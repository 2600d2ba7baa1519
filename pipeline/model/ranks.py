"""Which process is which rank: [ranks] of run.toml, else the environment, else file names, else devices."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.model.capture import Process
from pipeline.model.errors import UsageError
from pipeline.model.run import RanksSection

RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
LOCAL_RANK_VARIABLES = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
_RANK_IN_NAME = re.compile(r"(?i)(?<![a-z])rank[^a-z0-9]?(\d{1,7})(?!\d)")


@dataclass(frozen=True)
class GpuProcess:
    """A process with GPU work, the capture that shows it, and its node."""

    capture: str
    node: str
    process: Process


@dataclass(frozen=True)
class Ranking:
    """Ranks by (capture, Process.key) and by (node, pid), rows for the table `ranks`, and remarks."""

    ranks: Mapping[tuple[str, int], int] = field(default_factory=dict)
    by_pid: Mapping[tuple[str, int], int] = field(default_factory=dict)
    rows: Sequence[dict[str, Any]] = ()
    notes: tuple[str, ...] = ()
    basis: Mapping[tuple[str, int], str] = field(default_factory=dict)

    def rank_of(self, process: Process, node: str, capture: str) -> int | None:
        """Rank of a process seen without GPU work: a rank's own process by pid, or by its environment or file name."""
        if process.pid is not None and (node, process.pid) in self.by_pid:
            return self.by_pid[node, process.pid]
        known = set(self.ranks.values())
        for rank in (rank_in_environment(process.env), rank_in_name(capture)):
            if rank is not None and (rank in known or not known):
                return rank
        return None


def rank_in_environment(env: Mapping[str, str]) -> int | None:
    """The rank that a launcher put into the environment."""
    return _first_number(env, RANK_VARIABLES)


def rank_in_name(capture: str, pattern: str | None = None) -> int | None:
    """The rank in a capture's name: `rank0`, `rank_3`, or what the pattern's named or first group finds."""
    if pattern is None:
        found = _RANK_IN_NAME.findall(capture.rsplit("/", 1)[-1])
        return int(found[-1]) if found else None
    match = re.search(pattern, capture)
    if match is None:
        return None
    groups = match.groupdict()
    text = groups.get("rank") or (match.group(1) if match.re.groups else match.group(0))
    return int(text) if text and text.isdigit() else None


def assign_ranks(processes: Sequence[GpuProcess], rules: RanksSection) -> Ranking:
    """Ranks of the processes with GPU work.

    Raises UsageError where two captures claim one rank, or where the rule that run.toml names gives
    a process none.
    """
    ordered = sorted(
        processes, key=lambda p: (natural(p.node), _gpu(p), natural(p.capture), p.process.pid or 0, p.process.key)
    )
    chosen: dict[tuple[str, int], tuple[int, str]] = {}
    notes: list[str] = []
    rule = rules.from_ or ("filename" if rules.pattern else None)
    if rule is not None:
        give = {"env": _by_environment, "filename": _by_name(rules.pattern), "device": _by_device(rules)}[rule]
        chosen = {key: (rank, rule) for key, rank in give(ordered).items()}
        for each in ordered:
            if (each.capture, each.process.key) not in chosen:
                raise UsageError(
                    f'[ranks] from = "{rule}" gives process {each.process.pid} no rank',
                    where=each.capture,
                    todo="use another rule, or a pattern that its name matches",
                )
    else:
        left = ordered
        for name, give in (("env", _by_environment), ("filename", _by_name(None))):
            found = give(left)
            chosen |= {key: (rank, name) for key, rank in found.items()}
            left = [each for each in left if (each.capture, each.process.key) not in found]
        if not chosen:
            chosen = {key: (rank, "device") for key, rank in _by_device(rules)(left).items()}
        else:
            notes += [
                f"{each.capture}: process {each.process.pid} has no rank: neither its environment nor its file's "
                "name gives one; use [ranks] in run.toml"
                for each in left
            ]
    _check(ordered, chosen)
    return _ranking(ordered, chosen, notes)


_Rule = Callable[[Sequence[GpuProcess]], dict[tuple[str, int], int]]


def _by_environment(processes: Sequence[GpuProcess]) -> dict[tuple[str, int], int]:
    found = {
        (each.capture, each.process.key): rank
        for each in processes
        if (rank := rank_in_environment(each.process.env)) is not None
    }
    # A report's environment is its launcher's: the same number for all its processes is no rank.
    claims: dict[tuple[str, int], int] = defaultdict(int)
    for (capture, _), rank in found.items():
        claims[capture, rank] += 1
    return {key: rank for key, rank in found.items() if claims[key[0], rank] == 1}


def _by_name(pattern: str | None) -> _Rule:
    def give(processes: Sequence[GpuProcess]) -> dict[tuple[str, int], int]:
        alone = _alone(processes)
        found = {}
        for each in alone:
            rank = rank_in_name(each.capture, pattern)
            if rank is not None:
                found[each.capture, each.process.key] = rank
        if not found and pattern is None and len(alone) > 1:
            found = _by_only_difference(alone)
        return found

    return give


def _by_only_difference(processes: Sequence[GpuProcess]) -> dict[tuple[str, int], int]:
    """Names that differ in one number alone (report.0, report.1, …): that number, unless it looks like a pid."""
    names = [re.split(r"(\d+)", each.capture.rsplit("/", 1)[-1]) for each in processes]
    if len({len(name) for name in names}) != 1:
        return {}
    varying = [place for place, parts in enumerate(zip(*names, strict=True)) if len(set(parts)) > 1]
    if len(varying) != 1 or varying[0] % 2 == 0:
        return {}
    numbers = [int(name[varying[0]]) for name in names]
    if len(set(numbers)) < len(numbers) or max(numbers) >= 16 * len(numbers):
        return {}
    return {(p.capture, p.process.key): number for p, number in zip(processes, numbers, strict=True)}


def _by_device(rules: RanksSection) -> _Rule:
    def give(processes: Sequence[GpuProcess]) -> dict[tuple[str, int], int]:
        nodes = sorted({each.node for each in processes}, key=natural)
        local: dict[tuple[str, int], int] = {}
        for node in nodes:
            here = [each for each in processes if each.node == node]
            devices = [_gpu(each) for each in here]
            # Two processes on one device index (each sees its GPU as 0, or they share it): their order counts.
            numbers = devices if len(set(devices)) == len(devices) else list(range(len(here)))
            local |= {(p.capture, p.process.key): n for p, n in zip(here, numbers, strict=True)}
        per_node = rules.gpus_per_node or max(local.values(), default=0) + 1
        order = {node: index for index, node in enumerate(nodes)}
        return {
            (each.capture, each.process.key): order[each.node] * per_node + local[each.capture, each.process.key]
            for each in processes
        }

    return give


def _check(processes: Sequence[GpuProcess], chosen: Mapping[tuple[str, int], tuple[int, str]]) -> None:
    owner: dict[int, GpuProcess] = {}
    for each in processes:
        rank = chosen.get((each.capture, each.process.key), (None, ""))[0]
        if rank is None:
            continue
        if rank in owner:
            other = owner[rank]
            raise UsageError(
                f"{other.capture} (process {other.process.pid} on {other.node}) and {each.capture} "
                f"(process {each.process.pid} on {each.node}) both claim rank {rank}",
                todo="leave one out, or say in run.toml how ranks are known: [ranks] from or pattern",
            )
        owner[rank] = each


def _ranking(
    processes: Sequence[GpuProcess], chosen: Mapping[tuple[str, int], tuple[int, str]], notes: list[str]
) -> Ranking:
    rows: dict[int, dict[str, Any]] = {}
    per_node: dict[str, int] = defaultdict(int)
    by_pid = {}
    for each in processes:
        key = (each.capture, each.process.key)
        if key not in chosen:
            continue
        rank = chosen[key][0]
        process = each.process
        if process.pid is not None:
            by_pid[each.node, process.pid] = rank
        if rank in rows:
            continue
        gpu = process.gpus[0]
        said = _first_number(process.env, LOCAL_RANK_VARIABLES)
        rows[rank] = {
            "rank": rank,
            "node": each.node,
            "local_rank": per_node[each.node] if said is None else said,
            "pid": process.pid,
            "gpu_index": gpu.index,
            "gpu_name": gpu.name,
            "gpu_uuid": gpu.uuid,
        }
        per_node[each.node] += 1
    return Ranking(
        {key: rank for key, (rank, _) in chosen.items()},
        by_pid,
        [rows[rank] for rank in sorted(rows)],
        tuple(notes),
        {key: basis for key, (_, basis) in chosen.items()},
    )


def _alone(processes: Sequence[GpuProcess]) -> list[GpuProcess]:
    """Processes that have their capture to themselves: only then its name speaks of them."""
    count: dict[str, int] = defaultdict(int)
    for each in processes:
        count[each.capture] += 1
    return [each for each in processes if count[each.capture] == 1]


def _gpu(each: GpuProcess) -> int:
    return min(gpu.index for gpu in each.process.gpus)


def _first_number(env: Mapping[str, str], names: Sequence[str]) -> int | None:
    for name in names:
        value = env.get(name, "").strip()
        if value.isascii() and value.isdigit():
            return int(value)
    return None


def natural(text: str) -> list[tuple[int, int, str]]:
    """Sort key in which node10 comes after node9."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text) if part]
