"""Thirty nights of three jobs, one of which loses its GPU-initiated posts on night 21: what the nightly batch says.

    python benchmarks/nights.py [--nights N] [--pages] [--keep DIR]

Every night is simulated with seeds of its own and dropped into an inbox, then `mfuloss nightly` is called once, as a
timer would. Prints each verdict that is not silence, false alarms and misses, and the time. Exit code 1 if that night
is not told with the class that took the points, or if any other night is told.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pipeline import nightly as batch
from pipeline.nightly.settings import CONFIG
from pipeline.reports.nights import sentence
from pipeline.simulate import simulate

JOBS = {"moe": "moe-gpu-initiated", "dense": "healthy", "two-hop": "moe-two-hop"}
BROKEN = ("moe", 21, "gpu-initiated-fallback")
START = datetime(2026, 1, 1, 3, tzinfo=UTC)


def say(line: str) -> None:
    """A line of the result, at once."""
    print(line, flush=True)  # noqa: T201


def drop(inbox: Path, job: str, night: int, *, broken: bool, scale: float = 0.002) -> Path:
    """Simulate a job's night into the inbox; its folder."""
    name = BROKEN[2] if broken else JOBS[job]
    folder = inbox / job / f"{START + timedelta(days=night - 1):%Y-%m-%d}"
    seed = 100 * night + list(JOBS).index(job)
    folder.parent.mkdir(parents=True, exist_ok=True)
    simulate(name, folder, nodes=2, gpus_per_node=1, steps=4, seed=seed, scale=scale)
    toml = folder / "run.toml"
    started = f"{START + timedelta(days=night - 1):%Y-%m-%dT%H:%M:%SZ}"
    toml.write_text(toml.read_text().replace("2026-01-15T03:00:00Z", started))
    return folder


def play(folder: Path, nights: int, pages: bool) -> int:
    inbox, lake, out = folder / "inbox", folder / "lake", folder / "pages" if pages else None
    inbox.mkdir()
    (inbox / CONFIG).write_text("[inbox]\nsettle_s = 0\n")
    job, when, _ = BROKEN
    told: list[tuple[int, str, str]] = []
    right = False
    begin = time.perf_counter()
    for night in range(1, nights + 1):
        for each in JOBS:
            drop(inbox, each, night, broken=each == job and night >= when)
        outcome = batch.nightly(inbox, lake, jobs=1, out=out, openmetrics=folder / "mfuloss.prom")
        if outcome.failed or len(outcome.fresh) != len(JOBS):
            say(f"not read: {outcome.failed} {outcome.fresh}")
            return 1
        for run in outcome.fresh:
            found = outcome.verdict_of(run)
            assert found is not None
            series, verdict = found
            if verdict.status not in ("steady", "learning"):
                told.append((night, series.job, verdict.status))
                say(f"night {night}: {run}: {verdict.status}: {sentence(series, verdict)}")
            if (series.job, night) == (job, when):
                classes = [cost.name for cost in verdict.costs if cost.points > 0]
                right = verdict.status == "worse" and classes[:1] == ["control_plane_alpha"]
    seconds = time.perf_counter() - begin
    false = [each for each in told if each[:2] != (when, job)]
    say(f"{nights * len(JOBS)} job-nights, {len(false)} false alarms, night {when} {'told' if right else 'MISSED'}")
    say(f"{seconds:.0f} s for {nights} nights, {seconds / nights / len(JOBS):.2f} s a run")
    return int(bool(false) or not right)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--pages", action="store_true", help="a page a run as well")
    parser.add_argument("--keep", type=Path, help="keep inbox, lake and pages in this new folder")
    given = parser.parse_args()
    top = given.keep or Path(tempfile.mkdtemp(prefix="mfuloss-nights-"))
    top.mkdir(parents=True, exist_ok=True)
    try:
        status = play(top, given.nights, given.pages)
    finally:
        if given.keep is None:
            shutil.rmtree(top)
    sys.exit(status)
