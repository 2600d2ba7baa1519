"""Measures every stage against the raw cost of reading its input, and prints a table.

    python benchmarks/run.py [--scale 0.1 | --full] [--peers] [--json FILE]

Inputs are generated under bench/ and removed at the end. Each piece of work runs in a process of its own, whose wall
clock, processor time (all its processes) and peak memory (its largest process) the operating system tells. A ratio
is processor time over that of the baseline, measured in the same run, just before. --scale 1 (--full): 5 M kernels,
5 M runtime calls, 0.7 M NVTX ranges, 10 M eBPF records. --peers: also tools that install from PyPI, into bench/peers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import generate_ebpf
import generate_nsys
import peers

ROOT = Path(__file__).resolve().parent.parent
KERNELS, RECORDS, MESSAGES = 5_000_000, 10_000_000, 10_000_000
LAKE_FILES, LAKE_PROCESSES, LAKE_KERNELS = 8, 8, 12_000
INCIDENT_STEPS, INCIDENT_SCALE = 6, 0.01
"""The size that `simulate moe-control-plane` has by itself: 13 500 messages a rank."""
MANY_STEPS, MANY_SCALE = 10, 0.445
"""100 000 messages a rank and step; at full size 64 million, 9 GB of captures."""


@dataclass(frozen=True)
class Measured:
    """One row of the table. seconds: of the work alone where it says so itself, else of the whole process."""

    name: str
    rows: int
    seconds: float
    processor_s: float
    peak_mb: int
    goal: str = ""
    baseline: str = ""
    ratio: float | None = None
    own_s: float | None = None
    """Processor time of the process that hands out tasks, where the work says it."""


class Failed(Exception):
    """A measured process ended with an error."""


def measure(name: str, command: list[str], *, goal: str = "", against: Measured | None = None) -> Measured:
    """Run the command, which prints a JSON object as its last line. Raises Failed."""
    with tempfile.TemporaryFile() as out:
        began = time.perf_counter()
        process = subprocess.Popen(command, stdout=out, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read().decode()
    if process.returncode:
        raise Failed(f"{name}: exit code {process.returncode}")
    told = json.loads(text.strip().splitlines()[-1])
    processor = usage.ru_utime + usage.ru_stime
    seconds = told.get("seconds", wall)
    ratio = None
    if against is not None:
        inner = "seconds" in told
        ratio = seconds / against.seconds if inner else processor / against.processor_s
    return Measured(
        name,
        told["rows"],
        seconds,
        processor,
        usage.ru_maxrss // 1024,
        goal,
        against.name if against else "",
        ratio,
        told.get("own_s"),
    )


def case(name: str, case_name: str, *arguments: object, goal: str = "", against: Measured | None = None) -> Measured:
    """Measure a function of benchmarks/cases.py."""
    command = [sys.executable, str(ROOT / "benchmarks" / "cases.py"), case_name, *map(str, arguments)]
    return measure(name, command, goal=goal, against=against)


HEAD = "| work | rows | s | CPU s | rows/s | rows/CPU s | peak MB | ratio | against | goal |"


def _seconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def line(row: Measured) -> str:
    """A row of the table, in Markdown."""
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return (
        f"| {row.name} | {row.rows:,} | {_seconds(row.seconds)} | {_seconds(row.processor_s)} | {row.rows / row.seconds:,.0f} "
        f"| {row.rows / row.processor_s:,.0f} | {row.peak_mb:,} | {ratio} | {row.baseline} | {row.goal} |"
    )


class Table:
    """Prints each row as soon as it is measured."""

    def __init__(self) -> None:
        self.rows: list[Measured] = []
        show(HEAD)
        show("|---|" + "--:|" * 7 + "---|---|")

    def add(self, row: Measured) -> Measured:
        self.rows.append(row)
        show(line(row))
        return row


def show(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def versions() -> str:
    """What ran: machine, Python and the libraries that do the work."""
    from importlib.metadata import version

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    libraries = ", ".join(f"{name} {version(name)}" for name in ("duckdb", "pyarrow", "polars", "adbc-driver-sqlite"))
    cores = len(os.sched_getaffinity(0))
    return f"{cores} cores, {memory:.0f} GiB, {platform.machine()}, Python {platform.python_version()}, {libraries}"


def bench(folder: Path, scale: float, *, with_peers: bool) -> list[Measured]:
    """Generate, measure, print; the rows."""
    kernels, records, messages = (max(50_000, int(n * scale)) for n in (KERNELS, RECORDS, MESSAGES))
    table = Table()
    lake = folder / "lake"

    sqlite = folder / "rank0.sqlite"
    generate_nsys.generate(sqlite, kernels)
    raw = table.add(case("raw: sqlite3 sums", "raw_sqlite", sqlite))
    table.add(case("ingest sqlite", "ingest", lake, "one", sqlite, goal="1.0 M rows/s, 1 GB", against=raw))
    raw_ops = table.add(case("raw: read GPU operations", "raw_gpu_ops", lake, "one"))
    goal = "5 s for 5 M kernels"
    table.add(case("attribution, one rank", "attribute", lake, "one", goal=goal, against=raw_ops))
    raw_rows = table.add(case("raw: sum of the breakdown", "raw_breakdown", lake, "one"))
    table.add(case("report, text", "report", lake, "one", against=raw_rows))
    shutil.rmtree(lake)

    command = [sys.executable, "-c", _FILE_TO_REPORT, str(sqlite), str(lake)]
    whole = table.add(measure("file to report", command, goal="ahead of nsys-ai", against=raw))
    shutil.rmtree(lake)
    if with_peers:
        compare(table, folder, sqlite, kernels, whole)

    parquet = folder / "rank0_parquet"
    case("parquetdir", "to_parquetdir", sqlite, parquet)
    sqlite.unlink()
    raw = table.add(case("raw: Parquet sums", "raw_parquetdir", parquet))
    table.add(case("ingest parquetdir", "ingest", lake, "one", parquet, goal="1.0 M rows/s, 1 GB", against=raw))
    shutil.rmtree(parquet)
    shutil.rmtree(lake)

    for form, suffix in (("CSV", "csv"), ("JSON", "json")):
        text = folder / f"node0.{suffix}"
        generate_ebpf.generate(text, records, as_json=form == "JSON")
        raw = table.add(case(f"raw: scan of eBPF {form}", "raw_text", text))
        goal = "1.5 M records/s" if form == "CSV" else ""
        table.add(case(f"ingest eBPF {form}", "ingest", lake, "one", text, goal=goal, against=raw))
        text.unlink()
        shutil.rmtree(lake)

    raw = table.add(case("raw: least squares", "raw_fits", messages))
    table.add(case("fits, one path", "fits", messages, against=raw))

    many = folder / "many"
    many.mkdir()
    for number in range(LAKE_FILES):
        first = number * LAKE_PROCESSES
        generate_nsys.generate(
            many / f"node{number}.sqlite",
            LAKE_KERNELS * LAKE_PROCESSES,
            processes=LAKE_PROCESSES,
            first_rank=first,
        )
    table.add(case(f"ingest, {LAKE_FILES * LAKE_PROCESSES} ranks", "ingest", lake, "many", many))
    table.add(case(f"attribution, {LAKE_FILES * LAKE_PROCESSES} ranks", "attribute", lake, "many"))
    raw = table.add(case("raw: query of all ranks", "whole_query", lake, "many"))
    table.add(case("query of one rank and step", "pruned_query", lake, "many", goal="0.1 s", against=raw))
    shutil.rmtree(many)
    shutil.rmtree(lake)

    incidents(table, folder, lake, scale)
    return table.rows


def compare(table: Table, folder: Path, sqlite: Path, kernels: int, whole: Measured) -> None:
    """Peers on the same file; HTA, which reads another format, on as many events as ours beside it."""
    environment = folder.parent / "peers"
    for name, command in peers.nsys_ai(environment, sqlite, kernels):
        _try(table, name, command, whole)
    events = min(peers.HTA_EVENTS, 2 * kernels)
    equal, lake = folder / "equal.sqlite", folder / "equal"
    generate_nsys.generate(equal, events * 50 // 107)  # with launches and ranges as many rows as events
    ours = measure(f"file to report, {events:,} events", [sys.executable, "-c", _FILE_TO_REPORT, str(equal), str(lake)])
    table.add(ours)
    shutil.rmtree(lake)
    equal.unlink()
    _try(table, *peers.hta(environment, folder, events), ours)


def _try(table: Table, name: str, command: list[str], against: Measured) -> None:
    try:
        table.add(measure(name, command, against=against))
    except Failed as error:
        note(f"{error}, or stopped after {peers.LIMIT_S} s")


def incidents(table: Table, folder: Path, lake: Path, scale: float) -> None:
    """The simulator's incident over 64 ranks (fewer at a small scale): files to report, then with many messages."""
    nodes = max(2, round(8 * scale))
    ranks = f"{8 * nodes} ranks"
    played = folder / "incident"
    case("simulate", "simulate", played, nodes, INCIDENT_STEPS, INCIDENT_SCALE)
    command = [sys.executable, "-c", _FILE_TO_REPORT, str(played), str(lake)]
    table.add(measure(f"incident of {ranks}, files to report", command))
    shutil.rmtree(played)
    shutil.rmtree(lake)

    note(f"simulating {ranks} for messages")
    case("simulate", "simulate", played, nodes, MANY_STEPS, max(0.002, MANY_SCALE * scale))
    table.add(case(f"ingest, messages of {ranks}", "ingest", lake, "one", played))
    table.add(case(f"attribution, messages of {ranks}", "attribute_messages", lake, "one", goal="1 GB a worker"))
    table.add(case(f"report, messages of {ranks}", "report", lake, "one"))


_FILE_TO_REPORT = """
import json, sys
from pathlib import Path
from pipeline.ingest import ingest
from pipeline.reports import render
done = ingest([sys.argv[1]], sys.argv[2], run="one")
render(Path(sys.argv[2]), "one", "text")
print(json.dumps({"rows": done.rows}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scale", type=float, default=0.05, help="share of the full size (default: 0.05)")
    parser.add_argument("--full", action="store_const", dest="scale", const=1.0, help="the full size")
    parser.add_argument("--peers", action="store_true", help="also measure peers, installed into bench/peers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows to FILE")
    arguments = parser.parse_args()
    place = ROOT / "bench"
    place.mkdir(exist_ok=True)
    if arguments.peers:
        peers.install(place / "peers")
    note(f"{versions()}; scale {arguments.scale:g}")
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=place))
    try:
        rows = bench(folder, arguments.scale, with_peers=arguments.peers)
    finally:
        shutil.rmtree(folder)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
