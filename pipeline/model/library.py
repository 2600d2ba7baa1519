"""The SQL library: finds queries/ (beside the package in a checkout, inside it in a wheel) and reads its files.

A file `queries/<subject>/.../<name>.sql` defines `<name>`. Names that start with `_` are helpers.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def queries_dir() -> Path:
    """The folder of SQL files. Raises FileNotFoundError for a broken installation."""
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "queries", package.parent / "queries"):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError("the SQL library (queries/) is not installed with the package")


@cache
def paths() -> dict[str, Path]:
    """Every SQL file by the name that it defines. A name that occurs twice is an error."""
    found: dict[str, Path] = {}
    for path in sorted(queries_dir().rglob("*.sql")):
        if path.stem in found:
            raise ValueError(f"{path} and {found[path.stem]} define the same name")
        found[path.stem] = path
    return found


def sql(name: str) -> str:
    """Text of the file that defines `name`."""
    return paths()[name].read_text(encoding="utf-8")
