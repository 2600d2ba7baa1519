"""Exit codes and the one root of all errors that a user can do something about.

A `MfulossError` is one line: what went wrong, where, and what to do. `cli.main` catches it once and
exits with its code; anything else that escapes is a bug (exit code 1).
"""

from __future__ import annotations

import errno
from enum import IntEnum


class ExitCode(IntEnum):
    """Process exit codes of every `mfuloss` command."""

    DONE = 0
    BUG = 1
    """Our fault: an exception that is no `MfulossError`."""
    UNUSABLE = 2
    """Bad use of a command, or no usable input at all."""
    PARTIAL = 3
    """Done, but part of the input was unusable."""
    GATE_FAILED = 4
    """A comparison crossed the gate that the user set."""


class MfulossError(Exception):
    """An error for the user: `what` happened, `where` (file, table, line), and the next thing `todo`."""

    exit_code: ExitCode = ExitCode.UNUSABLE

    def __init__(self, what: str, *, where: object | None = None, todo: str | None = None) -> None:
        self.what = what
        self.where = None if where is None else str(where)
        self.todo = todo
        super().__init__(self.line())

    def line(self) -> str:
        """The error as one line, without line breaks from untrusted input."""
        parts = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.todo:
            parts.append(self.todo)
        return "; ".join(" ".join(part.split()) for part in parts)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments survive the trip through a process pool.
        return (_rebuild, (type(self), self.what, self.where, self.todo))


def _rebuild(cls: type[MfulossError], what: str, where: str | None, todo: str | None) -> MfulossError:
    error = cls.__new__(cls)
    MfulossError.__init__(error, what, where=where, todo=todo)
    return error


class UsageError(MfulossError):
    """The command was called with something that can't be meant."""


class UnusableInput(MfulossError):
    """An input file holds nothing that can be attributed; the other inputs go on."""


class ConfigError(MfulossError):
    """run.toml can't be read; `where` names file and key."""


class LakeError(MfulossError):
    """The lake can't be read or written."""


class DiskFull(LakeError):
    """No space is left, or the user's quota is used up."""

    def __init__(self, lake: object) -> None:
        super().__init__("the disk is full; the lake is as it was", where=lake, todo="free some space")


def is_disk_full(error: BaseException) -> bool:
    """Whether that is what an error of the system, or of a library that wraps one, says."""
    code = error.errno if isinstance(error, OSError) else None
    return code in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error)


class NoSuchRun(LakeError):
    """The run that was asked for is not in the lake."""


class ClockContradiction(MfulossError):
    """Two nodes' collectives can't have happened on any pair of clocks: the matching is wrong."""


class GateFailed(MfulossError):
    """A comparison lost more points than the gate allows."""

    exit_code = ExitCode.GATE_FAILED
