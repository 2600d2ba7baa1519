"""Ctrl-C inside a query: a thread ends what DuckDB is doing as soon as the operating system delivers the signal.

Python runs its handlers between instructions of the main thread, and that one may wait inside DuckDB, for a task that
another thread has, until the query ends. So the signal's byte on the wake-up descriptor is what counts.
"""

from __future__ import annotations

import signal
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakSet

if TYPE_CHECKING:
    import duckdb

_open: WeakSet[duckdb.DuckDBPyConnection] = WeakSet()
_sockets: list[socket.socket] = []
"""Both ends, kept for as long as the process lives."""


def interruptible(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """The connection, whose queries now end when a signal comes."""
    _open.add(connection)
    return connection


def watch() -> None:
    """Begin to look for signals; from the main thread, once."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    _sockets[:] = [ours, theirs]
    signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_interrupt_queries, args=(ours,), name="interrupts", daemon=True).start()


def _interrupt_queries(signals: socket.socket) -> None:
    while signals.recv(64):
        for connection in list(_open):
            import duckdb  # is there already, where a connection is

            with suppress(duckdb.ConnectionException):  # closed, and not collected yet
                connection.interrupt()
