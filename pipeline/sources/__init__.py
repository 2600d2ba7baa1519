"""One module an input format, each with `claims`, `inspect` and `read` (`pipeline.model.capture.Source`).

`SOURCES` names them in the order in which they are asked; the first that claims a path gets it.
"""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path
from typing import cast

from pipeline.model.capture import Source

SOURCES: tuple[str, ...] = (
    "nsys_sqlite",
    "nsys_columnar",
    "nsys_rep",
    "ebpf_csv",
    "perf_script",
    "counters_csv",
    "topology",
    "flight_recorder",
    "nccl_inspector",
    "nccl_profiler",
    "logs",
)
"""Module names below `pipeline.sources`, in the order in which they are asked."""


@cache
def source(name: str) -> Source:
    """The source module `name`, one of SOURCES."""
    return cast(Source, importlib.import_module(f"pipeline.sources.{name}"))


def source_of(path: Path) -> Source | None:
    """The source that reads `path` (a file, or a folder export); None where no source claims it."""
    return next((s for s in map(source, SOURCES) if s.claims(path)), None)
