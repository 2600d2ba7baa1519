"""What a source says of an input, and what it yields. The contract between sources and ingest.

A source module offers three functions (`Source`): `claims` (is this mine, cheaply), `inspect` (what
is in it) and `read` (its rows, as Arrow batches in the schema of `pipeline.model.schema`). It knows
nothing of the lake, of ranks' rules or of clocks: it yields times on its own clock and `rank` by
the mapping that `read` is given.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipeline.model.run import RunConfig

if TYPE_CHECKING:
    import pyarrow as pa


class Clock(StrEnum):
    """The clock of a capture's times."""

    REALTIME = "realtime"
    BOOTTIME = "boottime"
    MONOTONIC = "monotonic"
    NONE = "none"
    """The file has no times, or none that can be placed."""


class Status(StrEnum):
    OK = "ok"
    PARTIAL = "partial"
    UNUSABLE = "unusable"


@dataclass(frozen=True)
class Gpu:
    """A GPU of a process."""

    index: int
    name: str | None = None
    uuid: str | None = None


@dataclass(frozen=True)
class Process:
    """A process in a capture. `key` names it inside the capture and is what `ranks` maps.

    env: allow-listed variables only. gpus: those it used; empty for a process without GPU work.
    """

    key: int
    pid: int | None
    name: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True)
class Anchor:
    """One reading of a node's clocks at one instant, in ns. `bracket_ns` bounds the reading's error."""

    when: str
    monotonic_ns: int
    boottime_ns: int
    realtime_ns: int
    bracket_ns: int
    node: str | None = None


@dataclass(frozen=True)
class Capture:
    """What `inspect` found in an input, before reading its rows.

    host: node where the file says so, else None (then the folder's name). processes: empty where the
    format knows none. bytes: its size, which progress counts. present and missing are names
    of what the format could hold. reason is one line where status is not ok.
    """

    path: Path
    kind: str
    tool: str
    tool_version: str | None = None
    host: str | None = None
    clock: Clock = Clock.NONE
    status: Status = Status.OK
    reason: str | None = None
    processes: tuple[Process, ...] = ()
    anchors: tuple[Anchor, ...] = ()
    present: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int = 0


@dataclass
class Account:
    """What reading found out; the source fills it while `read` runs.

    lost_events: declared by the tool; None where the format can't tell. bad_lines: raw lines that
    could not be read (bytes, at most `KEEP_BAD_LINES` kept, all counted).
    """

    lost_events: int | None = None
    bad_line_count: int = 0
    bad_lines: list[bytes] = field(default_factory=list)
    probe_cost_ns: int | None = None
    probe_exit_ns: int | None = None
    probe_call_ns: int | None = None
    status: Status | None = None
    reason: str | None = None

    KEEP_BAD_LINES = 100_000

    def bad_line(self, line: bytes) -> None:
        self.bad_line_count += 1
        if len(self.bad_lines) < self.KEEP_BAD_LINES:
            self.bad_lines.append(line)

    def partial(self, reason: str) -> None:
        """Reading went through, but something is missing; the first reason stands."""
        if self.status is None:
            self.status, self.reason = Status.PARTIAL, reason


class Source(Protocol):
    """The functions of a source module (`pipeline.sources.SOURCES` lists the modules).

    A module may say `CONTIGUOUS = True`: then all batches of a table come one after the other, and ingest writes a
    table while the next one is read.
    """

    KIND: str

    def claims(self, path: Path) -> bool:
        """Whether this source reads `path` (a file, or a folder export), by name and first bytes."""
        ...

    def inspect(self, path: Path, config: RunConfig) -> Capture:
        """What the input holds. Raises UnusableInput where it can't be read at all."""
        ...

    def read(
        self,
        capture: Capture,
        ranks: Mapping[int, int],
        node: str,
        config: RunConfig,
        account: Account,
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield (table, batch) in the canonical schema (text may be dictionaries), memory flat in the size of the input.

        ranks: Process.key → rank; a key that is absent has rank NULL. node: what to put into `node`
        columns. Times are on `capture.clock`.
        """
        ...


ENVIRONMENT_ALLOW_LIST = (
    r"^(?:RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_RANK|NODE_RANK|SLURM_PROCID|SLURM_LOCALID|SLURM_NTASKS"
    r"|OMPI_COMM_WORLD_(?:RANK|LOCAL_RANK|SIZE)|PMI_RANK|PMI_SIZE|CUDA_VISIBLE_DEVICES|NCCL_[A-Z0-9_]+|NVSHMEM_[A-Z0-9_]+)$"
)
"""Names of environment variables that may reach the lake. Nothing else of an environment is ever read into it."""
