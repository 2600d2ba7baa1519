"""What is installed from the wheel works alone: queries and templates travel inside it."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.conftest import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    # hatchling is of the development group: a build environment of its own would fetch it again.
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(out)]
    command = [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(out.glob("mfuloss-*.whl"))


def test_every_query_is_in_the_wheel(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".sql")}
    ours = {f"pipeline/queries/{path.relative_to(ROOT / 'queries')}" for path in (ROOT / "queries").rglob("*.sql")}
    assert ours <= inside


def test_a_clean_environment_runs_the_main_job_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    # The dependencies come from this environment by path; the package itself comes from the wheel alone.
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    site = next((environment / "lib").glob("python*")) / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    dependencies = next(p for p in sys.path if p.endswith("site-packages"))
    (site / "dependencies.pth").write_text(dependencies + "\n")
    run = tmp_path / "elsewhere"
    run.mkdir()

    def mfuloss(*arguments: str) -> str:
        command = [str(environment / "bin" / "python"), "-m", "pipeline", *arguments]
        done = subprocess.run(command, cwd=run, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    mfuloss("ingest", str(ROOT / "sample_traces" / "h200_training"), "--lake", "lake", "--jobs", "1")
    assert "host_data" in mfuloss("report", "--lake", "lake")
    where = subprocess.run(
        [str(environment / "bin" / "python"), "-c", "import pipeline; print(pipeline.__file__)"],
        cwd=run, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert str(site) in where
