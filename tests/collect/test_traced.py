"""The collector on this kernel: a stand-in provider is built, driven and traced; its own clock tells the truth."""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.collect.calibrate import calibrate
from pipeline.collect.node import examine
from pipeline.collect.program import program
from pipeline.collect.run import run

RIG = Path(__file__).with_name("rig")
PROBES = Path("/sys/kernel/tracing/uprobe_events")


def _why_not() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("bpftrace") is None:
        return "needs bpftrace"
    if shutil.which("gcc") is None:
        return "needs gcc"
    if not Path("/sys/kernel/tracing/events/sched").is_dir():
        subprocess.run(["mount", "-t", "tracefs", "tracefs", "/sys/kernel/tracing"], check=False, capture_output=True)
    if not Path("/sys/kernel/tracing/events/sched").is_dir():
        return "needs tracefs"
    done = subprocess.run(["bpftrace", "-e", "BEGIN { exit(); }"], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"the kernel refuses BPF: {done.stderr.strip()[:200]}"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    why = _why_not()
    if why:
        pytest.skip(f"tracing with bpftrace {why}")
    folder = tmp_path_factory.mktemp("rig")
    library = folder / "libmlx5.so.1"
    subprocess.run(["gcc", "-O2", "-fPIC", "-shared", "-o", library, RIG / "provider.c"], check=True)
    subprocess.run(
        ["gcc", "-O2", "-pthread", "-o", folder / "driver", RIG / "driver.c", library, f"-Wl,-rpath,{folder}"],
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def traced(rig: Path) -> tuple[list[list[str]], list[list[str]]]:
    """(records, truth) of one traced run of all four phases, 200 messages each."""
    report = examine(library=rig / "libmlx5.so.1")
    truth: list[str] = []

    def drive() -> None:
        done = subprocess.run(
            [rig / "driver", "abcd", "200", "65536", "2000"], capture_output=True, text=True, check=True
        )
        truth.extend(done.stdout.splitlines())
        time.sleep(0.5)

    outcome = run(program(report), report, rig / "capture", seconds=0, started=drive)
    assert outcome.lost_events == 0
    records = [line.split(",") for line in outcome.csv.read_text().splitlines()]
    return records, [line.split(",") for line in truth]


def test_every_post_and_completion_is_recorded_once(traced: tuple[list[list[str]], list[list[str]]]) -> None:
    records, truth = traced
    posts = [(r[6], r[7]) for r in records if r[0] == "PO"]
    assert sorted((t[1], t[2]) for t in truth) == sorted(posts)
    completions = [(r[11], r[7]) for r in records if r[0] == "PC"]
    assert sorted((t[1], t[2]) for t in truth) == sorted(completions)


def test_a_chain_is_one_record_of_two_work_requests(traced: tuple[list[list[str]], list[list[str]]]) -> None:
    records, _ = traced
    chains = {(r[12], r[13], r[14], r[15]) for r in records if r[0] == "PO" and int(r[6]) == 0x4D4}
    assert {("2", "1", "2", "65536")} == chains


def test_wakeups_of_the_proxy_are_recorded(traced: tuple[list[list[str]], list[list[str]]]) -> None:
    records, _ = traced
    proxy = next(r[4] for r in records if r[0] == "PO" and int(r[6]) == 0x1A1)
    kinds = {kind: sum(r[0] == kind and r[2] == proxy for r in records) for kind in ("WK", "SI", "SO")}
    assert all(count >= 5 for count in kinds.values()), kinds


def test_the_capture_has_its_clock_and_its_end(rig: Path, traced: tuple[list[list[str]], list[list[str]]]) -> None:
    records, _ = traced
    meta = {r[2]: r[3] for r in records if r[0] == "META"}
    assert (meta["schema"], meta["clock"], meta["end"]) == ("rdma-ebpf-csv-1", "boottime", "1")
    assert len((rig / "capture" / "anchors.jsonl").read_text().splitlines()) == 2


def test_post_duration_less_the_probe_cost_is_within_a_microsecond_of_truth(
    rig: Path, traced: tuple[list[list[str]], list[list[str]]]
) -> None:
    records, truth = traced
    report = examine(library=rig / "libmlx5.so.1")
    cost = calibrate(report.post_send[0])
    measured = {(r[6], r[7]): int(r[2]) - int(r[1]) for r in records if r[0] == "PO" and int(r[6]) != 0x4D4}
    real = {(t[1], t[2]): int(t[4]) - int(t[3]) for t in truth}
    error = statistics.median(measured[key] - cost.median_ns - real[key] for key in measured)
    assert abs(error) <= 1_000, (error, cost)


def test_each_stamp_less_its_part_of_the_probe_cost_is_within_a_microsecond_of_truth(
    rig: Path, traced: tuple[list[list[str]], list[list[str]]]
) -> None:
    records, truth = traced
    cost = calibrate(examine(library=rig / "libmlx5.so.1").post_send[0])
    assert cost.exit_ns is not None
    assert 0 < cost.exit_ns < cost.median_ns < cost.call_ns
    stamped = {(r[6], r[7]): (int(r[1]), int(r[2])) for r in records if r[0] == "PO" and int(r[6]) != 0x4D4}
    real = {(t[1], t[2]): (int(t[3]), int(t[4])) for t in truth}
    early = statistics.median(real[key][0] - stamped[key][0] for key in stamped)
    late = statistics.median(stamped[key][1] - real[key][1] for key in stamped)
    assert abs(early - (cost.median_ns - cost.exit_ns)) <= 1_000, (early, cost)
    assert abs(late - cost.exit_ns) <= 1_000, (late, cost)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly_and_leaves_no_probe(rig: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "capture"
    script = (
        "from pathlib import Path\nfrom pipeline.collect.node import examine\nfrom pipeline.collect.program import program\n"
        "from pipeline.collect.run import run\n"
        f"report = examine(library=Path({str(rig / 'libmlx5.so.1')!r}))\n"
        f"print(run(program(report), report, Path({str(out)!r})).lost_events)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    limit = time.monotonic() + 60
    csv = out / "ebpf.csv"
    while not (csv.exists() and "HB," in csv.read_text()):
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.1)
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert (process.returncode, output) == (0, "0\n")
    assert ",end,1" in csv.read_text()
    assert str(rig) not in PROBES.read_text()
    assert len((out / "anchors.jsonl").read_text().splitlines()) == 2
