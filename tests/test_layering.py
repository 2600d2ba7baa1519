"""Imports run downwards only, and --help stays cheap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGE = ROOT / "pipeline"
MAY_IMPORT = {
    "model": set(),
    "sources": {"model"},
    "lake": {"model", "executor"},
    "executor": {"model"},
    "clocks": {"model", "lake", "sources", "executor"},
    "attribution": {"model", "lake", "sources", "clocks", "executor"},
    "ingest": {"model", "lake", "sources", "clocks", "executor", "attribution"},
    "reports": {"model", "lake", "sources", "clocks", "executor", "attribution", "ingest"},
    "doctor": {"model", "lake", "sources", "clocks", "executor", "attribution", "ingest"},
    "nightly": {"model", "lake", "sources", "clocks", "executor", "attribution", "ingest", "reports"},
    "simulate": {"model"},
    "collect": {"model"},
    "recipe": {"model"},
}
"""Which parts of the package a part may import, beside itself and the version. cli and the package itself: all."""


def imports(path: Path) -> set[str]:
    """Parts of `pipeline` that a module imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            if node.module == "pipeline":
                names = [f"pipeline.{alias.name}" for alias in node.names if alias.name != "__version__"]
            else:
                names = [node.module or ""]
        elif isinstance(node, ast.Call) and "import_module" in ast.dump(node.func):
            argument = node.args[0]
            if isinstance(argument, ast.Constant):
                names = [str(argument.value)]
        found |= {name.split(".")[1] for name in names if name.startswith("pipeline.")}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_module_imports_only_what_lies_below_it(path: Path) -> None:
    part = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if part in ("cli", "__init__", "__main__"):
        return
    assert part in MAY_IMPORT, f"{part} has no place among the layers"
    assert set() == imports(path) - MAY_IMPORT[part] - {part}


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom pipeline.cli import main\nsys.argv = ['mfuloss', 'ingest', '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(sorted({'altair', 'duckdb', 'numpy', 'polars', 'pyarrow', 'rich'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stderr.strip() == "[]"
