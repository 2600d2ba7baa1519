"""The probe's own cost on this node: what a probed function seems to take when it takes next to nothing.

The stamps of entry and return enclose part of the traps themselves. A libc function of some 10 ns is called under
the collector's own pair of probes; the median of what the probes then read is what they add to every post_send.
The kernel emulates some first instructions and single-steps others at ten times the price, so the function is
chosen to begin like post_send does.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pipeline.collect.elf import Library, Target
from pipeline.collect.run import stop_bpftrace
from pipeline.model.errors import MfulossError

_CALLS = 2_000
# Cheap, harmless, without arguments that matter: one of them begins as the target does.
_CANDIDATES = ("sched_getcpu", "labs", "abs", "toupper", "getpagesize", "random")
_PROGRAM = """
uprobe:{path}:{name} /pid == {pid}/ {{ @enter[tid] = nsecs; @qp[tid] = arg0; @wr[tid] = arg1; @posting[tid] = 1; }}
uretprobe:{path}:{name} /@enter[tid]/ {{ $exit = nsecs; printf("%llu\\n", $exit - @enter[tid]); delete(@enter[tid]); }}
interval:ms:50 {{ printf("ready\\n"); }}
END {{ clear(@enter); clear(@qp); clear(@wr); clear(@posting); }}
"""


@dataclass(frozen=True)
class ProbeCost:
    """Cost that a pair of probes adds to a call's measured duration, ns, over `n` calls of `function`."""

    median_ns: int
    p05_ns: int
    p95_ns: int
    n: int
    function: str


def calibrate(target: Target | None = None) -> ProbeCost:
    """Measure it. Raises MfulossError where probes can't be set."""
    libc = _libc()
    function = _choose(Library(libc), target)
    call = getattr(ctypes.CDLL(None), function)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "out"
        source = _PROGRAM.format(path=libc, name=function, pid=os.getpid())
        with output.open("wb") as stdout:
            process = subprocess.Popen(["bpftrace", "-B", "line", "-e", source], stdout=stdout, stderr=subprocess.PIPE)
            try:
                _wait(process, output)
                for _ in range(_CALLS):
                    call(1)
                time.sleep(0.5)
            finally:
                stop_bpftrace(process)
        values = [int(line) for line in output.read_text().split() if line.isdigit()]
    if len(values) < _CALLS // 2:
        raise MfulossError(f"only {len(values)} of {_CALLS} calls were seen", where=libc, todo="try again")
    cuts = statistics.quantiles(values, n=20)
    return ProbeCost(round(statistics.median(values)), round(cuts[0]), round(cuts[-1]), len(values), function)


def _wait(process: subprocess.Popen[bytes], output: Path) -> None:
    limit = time.monotonic() + 60
    while b"ready" not in output.read_bytes():
        if process.poll() is not None or time.monotonic() > limit:
            assert process.stderr is not None
            said = process.stderr.read().decode(errors="replace").strip().splitlines()
            raise MfulossError(f"bpftrace did not start: {said[-1] if said else 'it said nothing'}")
        time.sleep(0.05)


def _libc() -> Path:
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        for line in maps:
            name = line.rstrip("\n").split(maxsplit=5)[-1]
            if "/libc.so" in name or "/libc-" in name:
                return Path(name)
    raise MfulossError("this Python has no shared libc to calibrate with")


def _choose(libc: Library, target: Target | None) -> str:
    wanted = True if target is None else target.cheap
    for name in _CANDIDATES:
        found = libc.symbol(name)
        if found is not None and found.cheap == wanted:
            return name
    raise MfulossError("no libc function begins like post_send does", where=libc.path)
