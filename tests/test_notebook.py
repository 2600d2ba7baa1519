"""The example notebook runs as it is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import ROOT


def test_its_cells_run_in_order_and_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    notebook = json.loads((ROOT / "docs" / "example.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert len(names["by_step"]) == 14
    assert len(names["slowest"]) == 3
    assert names["top"].height == 5
