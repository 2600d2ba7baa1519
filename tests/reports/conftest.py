"""Lakes that tests only read, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.model.errors import UsageError
from pipeline.reports import load
from tests.reports import lakes


@pytest.fixture(autouse=True)
def no_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a report says does not depend on what a replay makes of literal rows; its own tests have that."""

    def none(run_dir: object, config: object) -> list[dict[str, object]]:
        raise UsageError("this installation has no replay")

    monkeypatch.setattr(load, "whatif", none)


@pytest.fixture(scope="session")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lakes.small(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="session")
def large_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lakes.large(tmp_path_factory.mktemp("large"))


@pytest.fixture(scope="session")
def evil_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lakes.evil(tmp_path_factory.mktemp("evil"))


@pytest.fixture
def empty_lake(tmp_path: Path) -> Path:
    lakes.new_run(tmp_path, "empty")
    return tmp_path
