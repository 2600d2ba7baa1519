"""Follows waits from culprit to culprit: one query a hop, until nobody on the way waited for somebody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.model import library

if TYPE_CHECKING:
    import duckdb

MAX_HOPS = 64


def make_charged(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the table `_charged` (every hop) from `_charged_waits` (hop 0) and `_culprit_timeline`."""
    connection.execute("CREATE OR REPLACE TEMP TABLE _charged AS FROM _charged_waits")
    for _ in range(MAX_HOPS):
        connection.execute(library.sql("_charged_onwards"))
        found = connection.execute("SELECT count(*) FROM _charged_onwards").fetchone()
        if not found or not found[0]:
            return
        connection.execute("INSERT INTO _charged FROM _charged_onwards")
