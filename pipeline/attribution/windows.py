"""A rank's timeline in windows of whole steps: the sweep of each needs its own events alone, so memory stays flat.

Steps tile, and what the sweep says of an instant depends on what is going on then and on the operation that comes
next. So a window needs the events that reach into it, and the first operation behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

OPERATIONS = 1_250_000
"""GPU operations of a window, about: its sweep takes some 250 MB."""

_EVENTS = ("cuda_api", "nvtx", "os_calls", "thread_states")


@dataclass(frozen=True)
class Window:
    """Steps `first` to `last` by place in time. next_ns: start of the first operation at or behind end_ns, if any."""

    first: int
    last: int
    start_ns: int
    end_ns: int
    next_ns: int

    def conditions(self) -> dict[str, str]:
        """By event table, which of its rows the window needs."""
        inside = f"end_ns > {self.start_ns:d} AND start_ns < {self.end_ns:d}"
        return {
            "gpu_ops": f"end_ns >= {self.start_ns:d} AND start_ns <= {self.next_ns:d}",
            **dict.fromkeys(_EVENTS, inside),
        }


def windows_of(connection: duckdb.DuckDBPyConnection) -> list[Window]:
    """The windows of a rank's connection that has `_step_order`: of like numbers of steps. Empty: no need to cut."""
    ((operations,),) = connection.execute("SELECT count(*) FROM gpu_ops").fetchall()
    parts = -(-operations // OPERATIONS)
    if parts <= 1:
        return []
    cuts = connection.execute(
        """SELECT min(ordinal), max(ordinal), min(start_ns), max(end_ns)
        FROM (SELECT *, ntile($1) OVER (ORDER BY ordinal) AS part FROM _step_order) GROUP BY part ORDER BY part""",
        [parts],
    ).fetchall()
    if len(cuts) <= 1:
        return []
    found = []
    for first, last, start_ns, end_ns in cuts:
        ((next_ns,),) = connection.execute(
            "SELECT min(start_ns) FROM gpu_ops WHERE start_ns >= $1 AND end_ns >= start_ns", [end_ns]
        ).fetchall()
        found.append(Window(first, last, start_ns, end_ns, end_ns if next_ns is None else next_ns))
    return found
