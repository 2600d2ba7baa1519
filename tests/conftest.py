"""Fixtures of the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of larger real captures beside the repository; the test is skipped where it is not there."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip("needs the real captures in ../shared")
    return path
