"""Environment variables of the processes in an Nsight Systems export: allow-listed ones, from all three places.

The blocks among StringIds do not say which process they belong to. Variables on which all blocks agree are every
process's. Rank variables that differ are given out only where LOCAL_RANK tells which process is meant: by the
device that a process uses. With several GPU processes in a report, a rank variable that is the same for all is
the launcher's, and says nothing of any of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pipeline.model.capture import Gpu
from pipeline.sources import nsys_tables as tables
from pipeline.sources.nsys_tables import Export, records, resolve
from pipeline.sources.nsys_text import allowed_variables, is_allowed, merge

_OF_ONE_PROCESS = re.compile(
    r"^(?:RANK|LOCAL_RANK|SLURM_PROCID|SLURM_LOCALID|OMPI_COMM_WORLD_(?:RANK|LOCAL_RANK)|PMI_RANK)$"
)
_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")


def environments(export: Export, gpus: Mapping[int, tuple[Gpu, ...]]) -> dict[int, dict[str, str]]:
    """Process key → variables, for the processes in `gpus`."""
    blocks = [block for block in _blocks(export) if block]
    agreed, differing = merge(blocks)
    if len(gpus) <= 1:
        # One GPU process: the most specific value wins; launchers' blocks lack the rank variables or repeat them.
        return {key: dict(agreed) for key in gpus}
    shared = {name: value for name, value in agreed.items() if not _OF_ONE_PROCESS.match(name)}
    found = {key: dict(shared) for key in gpus}
    if differing:
        for key, block in _by_local_rank(blocks, gpus).items():
            found[key].update(block)
    return found


def _by_local_rank(blocks: list[dict[str, str]], gpus: Mapping[int, tuple[Gpu, ...]]) -> dict[int, dict[str, str]]:
    owners = {used[0].index: key for key, used in gpus.items() if len(used) == 1}
    if len(owners) != len(gpus):
        return {}
    found: dict[int, list[dict[str, str]]] = {}
    for block in blocks:
        local = next((block[name] for name in _LOCAL_RANKS if name in block), None)
        if local is not None and local.isdecimal() and int(local) in owners:
            found.setdefault(owners[int(local)], []).append(block)
    return {key: merge(own)[0] for key, own in found.items()} if len(found) == len(gpus) else {}


def _blocks(export: Export) -> list[dict[str, str]]:
    listed: dict[str, str] = {}
    blocks: list[dict[str, str]] = []
    for row in records(export, tables.SYSTEM):
        name, value = row["name"] or "", row["value"] or b""
        if is_allowed(name):
            listed[name] = value.decode("utf-8", "replace")
        elif name == "DeviceEnvironment":
            blocks.append(allowed_variables(value, "\0\n;"))
    for row in records(export, tables.CAPTURE):
        name, value = row["name"] or "", (row["value"] or b"")
        if name.endswith("ENVIRONMENT_VARIABLE"):
            listed.update(allowed_variables(value, "\0"))
        elif is_allowed(name):
            listed[name] = value.decode("utf-8", "replace")
    strings = resolve(export.tables(), tables.STRINGS)
    if strings is not None:
        blocks += [allowed_variables(block, "\0") for block in export.environment_blocks(strings)]
    return [listed, *blocks]
