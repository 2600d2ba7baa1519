"""Lakes of real captures, each ingested once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import pipeline
from tests.conftest import ROOT

H200_RUN_TOML = ROOT / "sample_traces" / "h200_training" / "run.toml"
Query = Callable[[str], list[tuple]]


def lake_of(folder: Path, *inputs: Path, config: Path | None = None) -> Query:
    """Ingest `inputs` as one run into a new lake under `folder`; a function that asks it in SQL."""
    pipeline.ingest([str(path) for path in inputs], folder, run="run", config=config, jobs=1)

    def ask(query: str) -> list[tuple]:
        with pipeline.connect(folder) as connection:
            return connection.execute(query).fetchall()

    return ask


@pytest.fixture(scope="session")
def train_new(tmp_path_factory: pytest.TempPathFactory) -> Query:
    """14 training steps on one H200, Nsight Systems 2025.3.2 (a sample trace)."""
    return lake_of(tmp_path_factory.mktemp("train_new"), ROOT / "sample_traces" / "h200_training")


@pytest.fixture(scope="session")
def train_old(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Query:
    """The same program under Nsight Systems 2023.4.4."""
    capture = shared / "real" / "h200" / "train_old.sqlite"
    return lake_of(tmp_path_factory.mktemp("train_old"), capture, config=H200_RUN_TOML)


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, shared: Path) -> Query:
    """Two NCCL ranks time-slicing one GPU; rank 1 is late in steps 3, 5 and 6."""
    h200 = shared / "real" / "h200"
    return lake_of(tmp_path_factory.mktemp("two_ranks"), h200 / "rank0_new.sqlite", h200 / "rank1_new.sqlite")


@pytest.fixture(scope="session")
def rdma_proxy(tmp_path_factory: pytest.TempPathFactory) -> Query:
    """eBPF alone: four phases of posting through a stand-in provider (a sample trace)."""
    return lake_of(tmp_path_factory.mktemp("rdma_proxy"), ROOT / "sample_traces" / "rdma_proxy")
