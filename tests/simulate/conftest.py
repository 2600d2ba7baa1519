"""Small runs of every scenario, written once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.simulate import SCENARIOS, simulate


@pytest.fixture(scope="session", params=sorted(SCENARIOS))
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scenario's files: 2 nodes of 2 GPUs, 4 steps."""
    scale = 0.05 if request.param.startswith("decode") else 0.005
    out = tmp_path_factory.mktemp(request.param) / "run"
    return simulate(request.param, out, nodes=2, gpus_per_node=2, steps=4, seed=7, scale=scale)
