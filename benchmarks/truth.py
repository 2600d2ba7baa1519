"""A whole incident, eight nodes of eight GPUs, held against what the simulator knows: account, bounds and findings.

    python benchmarks/truth.py [SCENARIO...] [--nodes 8] [--gpus 8] [--steps 3] [--scale 0.02] [--jobs 2] [--keep DIR]

Prints for each category its true and attributed share of all steps, the mean and the worst difference of a rank's step, how
wide its bounds are and how many cells lie outside them, and the findings that are missing or were not expected. Exit
code 1 if a network category is further off than 3 % of a step, another one than 1 %, or a finding is missing.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import duckdb

from pipeline.ingest import ingest
from pipeline.model.categories import BY_NAME
from pipeline.simulate import simulate

NETWORK_PERCENT, OTHER_PERCENT = 3, 1
ROUNDED_NS, RATES = 20, 1e-5
CELLS = """
WITH truth AS (SELECT rank, step, category, true_ns FROM read_parquet($truth)),
account AS (
    SELECT rank, step, category, sum(attributed_ns)::BIGINT AS ns, sum(lo_ns)::BIGINT AS lo_ns, sum(hi_ns)::BIGINT AS hi_ns
    FROM read_parquet($breakdown) GROUP BY ALL
),
lengths AS (SELECT rank, step, sum(true_ns)::BIGINT AS wall_ns FROM truth GROUP BY ALL),
cell AS (
    SELECT category, wall_ns, coalesce(true_ns, 0) AS true_ns, coalesce(ns, 0) AS ns, coalesce(lo_ns, 0) AS lo_ns,
        coalesce(hi_ns, 0) AS hi_ns
    FROM truth FULL JOIN account USING (rank, step, category) JOIN lengths USING (rank, step)
)
SELECT category,
    100 * sum(true_ns) / (SELECT sum(wall_ns) FROM lengths),
    100 * sum(ns) / (SELECT sum(wall_ns) FROM lengths),
    100 * avg(abs(ns - true_ns) / wall_ns),
    100 * max(abs(ns - true_ns) / wall_ns),
    100 * avg((hi_ns - lo_ns) / wall_ns),
    count(*) FILTER (greatest(lo_ns - true_ns, true_ns - hi_ns) > $rounded + $rates * wall_ns),
    count(*)
FROM cell GROUP BY category ORDER BY 2 DESC, 1
"""


def say(line: str) -> None:
    """A line of the result, at once."""
    print(line, flush=True)  # noqa: T201


def hold(name: str, folder: Path, given: argparse.Namespace) -> bool:
    """Simulate, ingest and compare one scenario; whether it is within what the suite allows."""
    run, lake = folder / name, folder / f"{name}-lake"
    simulate(name, run, nodes=given.nodes, gpus_per_node=given.gpus, steps=given.steps, seed=11, scale=given.scale)
    truth = json.loads((run / "truth.json").read_text())
    begin, before = time.perf_counter(), _cpu_seconds()
    ingest([str(run)], lake, jobs=given.jobs)
    seconds, cpu = time.perf_counter() - begin, _cpu_seconds() - before
    with duckdb.connect() as database:
        files = {"truth": f"{run}/truth.parquet", "breakdown": f"{lake}/run=*/breakdown/*.parquet"}
        rows = database.execute(CELLS, {**files, "rounded": ROUNDED_NS, "rates": RATES}).fetchall()
        found = {
            row[0]
            for path in lake.glob("run=*/findings/*.parquet")
            for row in database.execute("SELECT DISTINCT code FROM read_parquet($1)", [str(path)]).fetchall()
        }
        messages = sum(
            database.execute("SELECT count(*) FROM read_parquet($1)", [str(path)]).fetchall()[0][0]
            for path in lake.glob("run=*/rdma_messages/*.parquet")
        )
    say(
        f"\n{name}: {given.nodes} x {given.gpus}, {given.steps} steps, {messages} messages; {seconds:.0f} s, {cpu:.0f} CPU s"
    )
    say(f"{'category':<18} {'true %':>8} {'told %':>8} {'mean off':>9} {'worst off':>9} {'width':>7}  outside")
    good = True
    for category, true, told, mean, worst, width, outside, cells in rows:
        limit = NETWORK_PERCENT if BY_NAME[category].group in ("network", "comm") else OTHER_PERCENT
        good &= worst <= limit
        mark = "  <-- off" if worst > limit else ""
        say(
            f"{category:<18} {true:>8.3f} {told:>8.3f} {mean:>9.4f} {worst:>9.4f} {width:>7.2f}  {outside}/{cells}{mark}"
        )
    expected = set(truth["expected_findings"])
    missing, surprising = expected - found, found - expected - set(truth["consequences"])
    say(
        f"findings: {len(found)}; missing: {', '.join(sorted(missing)) or 'none'}; not expected: {', '.join(sorted(surprising)) or 'none'}"
    )
    return good and not missing and not surprising


def _cpu_seconds() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", nargs="*", default=["moe-control-plane"])
    for option, value in (("--nodes", 8), ("--gpus", 8), ("--steps", 3), ("--jobs", 2)):
        parser.add_argument(option, type=int, default=value)
    parser.add_argument("--scale", type=float, default=0.02)
    parser.add_argument("--keep", type=Path, help="keep captures and lakes in this new folder")
    options = parser.parse_args()
    top = options.keep or Path(tempfile.mkdtemp(prefix="mfuloss-truth-"))
    top.mkdir(parents=True, exist_ok=True)
    try:
        held = [hold(each, top, options) for each in options.scenario]
    finally:
        if options.keep is None:
            shutil.rmtree(top)
    sys.exit(int(not all(held)))
