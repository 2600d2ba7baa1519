"""The Nsight Systems recipe: installed, run by a stand-in for the framework anywhere, and by the real nsys where it is."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import pipeline
from pipeline.model.errors import UsageError
from pipeline.recipe import install
from tests.conftest import ROOT

SAMPLE = ROOT / "sample_traces" / "h200_training" / "train_new.sqlite"
EVERYTHING = {
    "breakdown.parquet",
    "steps.parquet",
    "mfu.parquet",
    "findings.parquet",
    "captures.parquet",
    "report.html",
}


def _framework(output: Path) -> types.ModuleType:
    """The part of nsys_recipe.lib.recipe that the recipe uses, as 2023.4 and 2025.3 have it."""
    module = types.ModuleType("nsys_recipe.lib.recipe")
    module.__file__ = __file__

    class Recipe:
        def __init__(self, inputs: list[str]) -> None:
            self._parsed_args = types.SimpleNamespace(input=inputs)
            self._analysis_dict: dict[str, Any] = {}
            self._output_files: list[str] = []

        def run(self, context: Any) -> None:
            output.mkdir(parents=True)

        def add_output_file(self, name: str) -> str:
            self._output_files.append(name)
            return str(output / name)

        def create_notebook(self, name: str) -> None:
            shutil.copy(Path(sys.modules["mfu_loss"].__file__ or "").with_name(name), output / name)

        def create_analysis_file(self) -> None:
            (output / "out.nsys-analysis").write_text(json.dumps(self._analysis_dict))

    module.Recipe = Recipe  # type: ignore[attr-defined]
    return module


class _Context:
    def map(self, function: Any, items: list[str], **options: Any) -> list[Any]:
        return [function(item, **options) for item in items]

    def wait(self, result: Any) -> Any:
        return result


def test_the_recipe_gives_the_breakdown_of_ingesting_the_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install(tmp_path / "recipes")
    arguments = types.ModuleType("nsys_recipe.lib.args")
    arguments.Option = types.SimpleNamespace(INPUT=1, OUTPUT=2, FORCE_OVERWRITE=3)  # type: ignore[attr-defined]
    lib = types.ModuleType("nsys_recipe.lib")
    lib.recipe = _framework(tmp_path / "out")  # type: ignore[attr-defined]
    for name, module in (("nsys_recipe", types.ModuleType("nsys_recipe")), ("nsys_recipe.lib", lib),
                         ("nsys_recipe.lib.recipe", lib.recipe), ("nsys_recipe.lib.args", arguments)):  # fmt: skip
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("mfu_loss", folder / "mfu_loss.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "mfu_loss", module)
    spec.loader.exec_module(module)
    module.MfuLoss([str(SAMPLE)]).run(_Context())
    made = {path.name for path in (tmp_path / "out").iterdir()}
    assert made >= EVERYTHING | {"breakdown.ipynb", "out.nsys-analysis"}

    pipeline.ingest([str(SAMPLE)], tmp_path / "lake", run="recipe", jobs=1)
    with pipeline.connect(tmp_path / "lake") as connection:
        expected = connection.execute("FROM breakdown").fetchall()
    found = pl.read_parquet(tmp_path / "out" / "breakdown.parquet").rows()
    assert sorted(map(str, found)) == sorted(map(str, expected))


def test_it_does_not_overwrite_a_recipe_unasked(tmp_path: Path) -> None:
    install(tmp_path)
    with pytest.raises(UsageError, match="there already"):
        install(tmp_path)
    assert install(tmp_path, force=True) == tmp_path / "mfu_loss"


@pytest.mark.parametrize("mode", ["none", "concurrent", "dask-futures"])
def test_the_real_nsys_runs_it(tmp_path: Path, shared: Path, mode: str) -> None:
    nsys = shutil.which(os.environ.get("NSYS", "nsys"))
    if nsys is None:
        pytest.skip("needs nsys on PATH or in $NSYS")
    python = shutil.which("python3")
    needs = "import pandas, numpy, pyarrow, psutil, distributed; assert numpy.__version__ < '2'"
    if python is None or subprocess.run([python, "-c", needs], capture_output=True, check=False).returncode:
        pytest.skip(
            "needs a python3 on PATH with what nsys recipes use (numpy<2, pandas<3, pyarrow, psutil, distributed)"
        )
    install(tmp_path / "recipes")
    report = shared / "real" / "public" / "nsys-sqlite" / "nways-jacobi" / "jacobi_report.nsys-rep"
    done = subprocess.run(
        [nsys, "recipe", "mfu_loss", "--mode", mode, "--input", str(report), "--output", str(tmp_path / "out")],
        env={**os.environ, "NSYS_RECIPE_PATH": str(tmp_path / "recipes")}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= EVERYTHING
