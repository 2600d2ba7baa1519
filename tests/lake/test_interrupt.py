"""A signal ends the queries of every open connection."""

from __future__ import annotations

import socket

import duckdb

from pipeline.lake.interrupt import _interrupt_queries, interruptible


def test_a_connection_that_is_closed_already_is_passed_over() -> None:
    closed, open_ = interruptible(duckdb.connect()), interruptible(duckdb.connect())
    closed.close()
    ours, theirs = socket.socketpair()
    theirs.send(b"\x02")
    theirs.close()
    _interrupt_queries(ours)
    ours.close()
    assert open_.sql("SELECT 1").fetchall() == [(1,)]
