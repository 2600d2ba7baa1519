"""Fixtures of the attribution tests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.attribution import timeline

if TYPE_CHECKING:
    import duckdb


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    """One in-memory database for steps and sweep; each use fills all of its tables anew."""
    connection = timeline.database(tmp_path_factory.mktemp("run"))
    yield connection
    connection.close()
