"""Runs the collector: anchors, bpftrace, a clean stop. Its files are what `mfuloss ingest` reads."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from pipeline.collect.clock import write_anchor
from pipeline.collect.node import NodeReport
from pipeline.collect.program import SCHEMA
from pipeline.model.errors import MfulossError

if TYPE_CHECKING:
    from pipeline.collect.calibrate import ProbeCost

_PR_SET_PDEATHSIG = 1
_START_LIMIT_S = 60
_STOP_LIMIT_S = 20
_LOST = re.compile(rb"[Ll]ost (\d+) events")


@dataclass(frozen=True)
class Outcome:
    """What a run of the collector left behind."""

    csv: Path
    records: int
    lost_events: int
    seconds: float


def _die_with_parent() -> None:
    # A collector that is killed takes its bpftrace along, and with its file descriptors go the probes.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


def run(
    source: str,
    report: NodeReport,
    out: Path,
    *,
    seconds: float | None = None,
    probe_cost: ProbeCost | None = None,
    pages: int = 1024,
    started: Callable[[], None] | None = None,
) -> Outcome:
    """Trace until `seconds` are over, SIGINT or SIGTERM. Writes OUT/ebpf.csv, anchors.jsonl, collector.bt, stderr.

    pages: per-CPU buffer pages; they absorb bursts, not rates. Raises MfulossError where bpftrace does not start.
    """
    if shutil.which("bpftrace") is None:
        raise MfulossError("bpftrace is not installed", todo="install the package bpftrace")
    out.mkdir(parents=True, exist_ok=True)
    csv = out / "ebpf.csv"
    if csv.exists():
        raise MfulossError("there is a capture already", where=csv, todo="choose another folder")
    (out / "collector.bt").write_text(source, encoding="utf-8")
    command = ["bpftrace", "-B", "line"]
    targets = [*report.post_send, *report.poll_cq, *report.modify_qp, *report.proxies]
    if any(target.needs_unsafe for target in targets):
        command.append("--unsafe")
    stop = _Stop()
    begin = time.monotonic()
    with (out / "anchors.jsonl").open("w", encoding="utf-8") as anchors, stop:
        write_anchor(anchors, "start")
        _write_head(csv, probe_cost)
        with csv.open("ab") as stdout, (out / "bpftrace.stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [*command, str(out / "collector.bt")],
                stdout=stdout,
                stderr=stderr,
                env={"BPFTRACE_PERF_RB_PAGES": str(pages), "PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
            try:
                _wait_for_start(process, csv, out)
                if started is not None:
                    started()
                deadline = None if seconds is None else time.monotonic() + seconds
                while not stop.asked and process.poll() is None and (deadline is None or time.monotonic() < deadline):
                    time.sleep(0.05)
            finally:
                stop_bpftrace(process)
        write_anchor(anchors, "end")
    if process.returncode not in (0, -signal.SIGINT):
        raise MfulossError(f"bpftrace failed: {_last_line(out)}", where=out / "bpftrace.stderr")
    records, lost = _count(csv)
    return Outcome(csv, records, lost, time.monotonic() - begin)


class _Stop:
    """Catches SIGINT and SIGTERM while it is entered."""

    asked = False

    def __enter__(self) -> _Stop:
        self._before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True


def _write_head(csv: Path, probe_cost: ProbeCost | None) -> None:
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    lines = [f"META,{now},schema,{SCHEMA}\n", f"META,{now},clock,boottime\n"]
    if probe_cost is not None:
        lines += [f"META,{now},{key},{value}\n" for key, value in probe_cost.records().items()]
    lines += [f"META,{now},qp,{row}\n" for row in queue_pairs()]
    csv.write_text("".join(lines), encoding="ascii")


def queue_pairs() -> Sequence[str]:
    """Queue pairs that exist already, as pid/qp/device/peer_qp, from `rdma resource show qp`; none where it can't tell."""
    if shutil.which("rdma") is None:
        return []
    done = subprocess.run(["rdma", "-j", "resource", "show", "qp"], capture_output=True, text=True, check=False)
    try:
        rows = json.loads(done.stdout or "[]")
    except ValueError:
        return []
    return [
        f"{row['pid']}/{row['lqpn']}/{row['ifname']}/{row.get('rqpn', 0)}"
        for row in rows
        if {"pid", "lqpn", "ifname"} <= row.keys()
    ]


def _wait_for_start(process: subprocess.Popen[bytes], csv: Path, out: Path) -> None:
    limit = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < limit:
        if b"HB," in csv.read_bytes():  # not BEGIN's line: bpftrace 0.17 now and then loses that one
            return
        if process.poll() is not None:
            raise MfulossError(f"bpftrace did not start: {_last_line(out)}", where=out / "bpftrace.stderr")
        time.sleep(0.05)
    raise MfulossError(f"bpftrace did not start within {_START_LIMIT_S} s", where=out / "bpftrace.stderr")


def stop_bpftrace(process: subprocess.Popen[bytes]) -> None:
    """End bpftrace so that it prints what it holds; by force where it does not answer."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _last_line(out: Path) -> str:
    lines = (out / "bpftrace.stderr").read_text(encoding="utf-8", errors="replace").split("\n")
    said = [line.strip() for line in lines if line.strip() and "RLIMIT_MEMLOCK" not in line]
    return next((line for line in said if "ERROR" in line), said[-1] if said else "it said nothing")


def _count(csv: Path) -> tuple[int, int]:
    records = lost = 0
    with csv.open("rb") as stream:
        for line in stream:
            records += line[:3] in (b"PO,", b"PC,", b"WK,", b"SI,", b"SO,")
            match = _LOST.search(line)
            lost += int(match[1]) if match else 0
    return records, lost
