"""mfuloss: attributes every nanosecond of every step of a GPU cluster to a cause.

From Python:

    import pipeline

    pipeline.ingest(["captures/"], "lake")
    print(pipeline.report("lake"))
    lake = pipeline.Lake("lake")
    lake.scan("breakdown").collect()            # a polars LazyFrame
    with pipeline.connect("lake") as database:  # DuckDB, read-only
        database.sql("SELECT category, sum(attributed_ns) FROM breakdown GROUP BY ALL").show()

Importing this package is cheap; what a call needs is imported by the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Lake", "__version__", "attribute", "connect", "ingest", "report"]

if TYPE_CHECKING:
    from pipeline.ingest import attribute, ingest
    from pipeline.lake.connect import Lake, connect
    from pipeline.reports import render as report

_HOMES = {
    "Lake": ("pipeline.lake.connect", "Lake"),
    "connect": ("pipeline.lake.connect", "connect"),
    "ingest": ("pipeline.ingest", "ingest"),
    "attribute": ("pipeline.ingest", "attribute"),
    "report": ("pipeline.reports", "render"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    try:
        module, attribute = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'pipeline' has no attribute {name!r}") from None
    return getattr(import_module(module), attribute)
