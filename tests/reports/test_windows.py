"""A run in which no steps were found: every format tells it in windows, and claims nothing of steps."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from pipeline.lake.catalog import find_run
from pipeline.model.errors import UsageError
from pipeline.reports import compare, render, whatifs
from tests.attribution.build import attributed
from tests.reports.lakes import MS

SAID = (
    "no steps were found",
    "no step is known",
    "no claim about steps",
    "no step time to change",
    "how many steps' FLOPs",
    "name the steps' ranges",
    "[steps] pattern",
    "steps_window",
    "claim nothing about steps",
    "no step ranges",
)
"""What is said of steps: that there are none."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kernels of two ranks that repeat with no period, some of them collectives, and idle gaps of 2 ms before launches."""
    lake = tmp_path_factory.mktemp("lake")
    draw = random.Random(7)
    gpu_ops, at = [], 0
    for number in range(400):
        at += draw.choice((10_000, 2 * MS))
        end = at + draw.randint(100_000, MS)
        comm = draw.random() < 0.2
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if comm else f"gemm_{draw.randrange(60)}"
        for rank in range(2):
            start = at if rank == 0 or not comm else at + (end - at) // 2
            common = {"rank": rank, "start_ns": start, "end_ns": end, "correlation_id": number, "launch_tid": 1}
            launch = {"launch_start_ns": start - 5_000, "launch_end_ns": start - 2_000}
            gpu_ops.append({**common, **launch, "op_class": "comm" if comm else "compute", "name": name})
        at = end
    run_dir = attributed(lake, gpu_ops=gpu_ops)
    run_dir.write_manifest({"run": "aperiodic", "config": {}})
    run_dir.path.rename(lake / "run=aperiodic")
    return lake


def without_what_may_be_said(text: str) -> str:
    flat = " ".join(text.split()).replace("&#39;", "'").replace("\\", "")
    for words in SAID:
        flat = re.sub(re.escape(words), "", flat, flags=re.IGNORECASE)
    return flat


@pytest.mark.parametrize("format", ["text", "markdown"])
def test_a_report_of_windows_claims_no_step(lake: Path, format: str) -> None:
    text = str(render(lake, None, format))
    assert "no steps were found" in text
    assert "per rank and window" in text
    assert re.findall(r"[^.]*\bsteps?\b[^.]*", without_what_may_be_said(text)) == []
    assert "host_stall" in text.replace("\\", "")  # a finding that counts windows


def test_the_page_names_windows_where_it_named_steps(lake: Path) -> None:
    page = str(render(lake, None, "html"))
    body = re.sub(r"<script(?! type=\"application/json\").*?</script>|<style.*?</style>", "", page, flags=re.DOTALL)
    shown = without_what_may_be_said(re.sub(r"<[^>]*>", " ", body))
    assert re.findall(r".{40}(?<!mfuloss\.)\bsteps?\b(?!\":).{40}", shown) == []
    assert '"unit": "window"' in page


def test_windows_of_two_runs_are_not_compared(lake: Path) -> None:
    run = find_run(lake, "aperiodic")
    with pytest.raises(UsageError, match="windows, no steps"):
        compare.load(run, run)


def test_no_change_of_a_step_time_that_is_not_known(lake: Path) -> None:
    with pytest.raises(UsageError, match="no step time to change"):
        whatifs.render(lake, None, None, None, "text")
