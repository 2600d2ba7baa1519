"""The engine's own promises: it runs on anything, and it replaces what it made before."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.model.errors import ConfigError
from tests.attribution.build import attributed, rows


def test_a_run_without_any_event_has_no_steps_and_no_error(tmp_path: Path) -> None:
    run_dir = attributed(tmp_path)
    assert rows(run_dir, "SELECT count(*) FROM steps") == [(0,)]


def test_a_pattern_that_re2_can_not_run_is_an_error_that_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"steps\.pattern"):
        attributed(tmp_path, {"steps": {"pattern": r"step(?=_)"}})
