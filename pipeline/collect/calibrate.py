"""The probes' own cost on this node: what a probed function seems to take when it takes next to nothing.

A libc function of some 10 ns is called under the collector's own program. What its records then read as duration is
what the probes add to every post_send; what a call takes the caller, less the same call without probes, is what they
cost in all. The kernel emulates some first instructions and single-steps others at ten times the price, so the
function is chosen to begin like post_send does. Of the added duration the part behind the function's end is known
from a function that reads the clock itself: the single step lies before it, so any such function will do.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pipeline.collect.elf import Library, Target
from pipeline.collect.program import render
from pipeline.collect.run import stop_bpftrace
from pipeline.model.errors import MfulossError

_CALLS = 2_000
# Cheap, harmless, without arguments that matter: one of them begins as the target does.
_CANDIDATES = ("sched_getcpu", "labs", "abs", "toupper", "getpagesize", "random")
# BPF's nsecs is CLOCK_BOOTTIME in bpftrace. The time that the call read is at the address of its second argument.
_CLOCK_PROBES = """
uprobe:{path}:clock_gettime /pid == {pid} && arg0 == {clock}/ {{ @read[tid] = arg1; }}
uretprobe:{path}:clock_gettime /@read[tid]/ {{
  $exit = nsecs; $read = *(uint64 *)@read[tid] * 1000000000 + *(uint64 *)(@read[tid] + 8);
  printf("CX,%llu\\n", $exit - $read); delete(@read[tid]);
}}
"""


@dataclass(frozen=True)
class ProbeCost:
    """What a pair of probes adds to a call's measured duration, ns, over `n` calls of `function`.

    exit_ns: the part of the median after the function's end, some 40 ns of a clock's own reading included; None
    where it can't be told. call_ns: what the pair costs the calling thread in all, inside the duration and outside.
    """

    median_ns: int
    p05_ns: int
    p95_ns: int
    n: int
    function: str
    exit_ns: int | None
    call_ns: int

    def records(self) -> dict[str, int]:
        """META records of a capture, by key."""
        found = {"probe_cost_ns": self.median_ns, "probe_exit_ns": self.exit_ns, "probe_call_ns": self.call_ns}
        return {key: value for key, value in found.items() if value is not None}


def calibrate(target: Target | None = None) -> ProbeCost:
    """Measure it. Raises MfulossError where probes can't be set."""
    libc = _libc()
    library = Library(libc)
    function = _choose(library, target)
    loaded = ctypes.CDLL(None)
    buffers = [ctypes.create_string_buffer(256) for _ in range(2)]  # a queue pair and a work request, all zero
    arguments = [ctypes.c_void_p(ctypes.addressof(buffer)) for buffer in buffers]
    call = getattr(loaded, function.function)
    source = render([function], pids=(os.getpid(),))
    clock = library.symbol("clock_gettime")
    if clock is not None:
        source += _CLOCK_PROBES.format(path=libc, pid=os.getpid(), clock=time.CLOCK_BOOTTIME)
    free_ns = statistics.median(_batch(call, arguments) for _ in range(40))
    with tempfile.TemporaryDirectory() as folder:
        output, program = Path(folder) / "out", Path(folder) / "calibrate.bt"
        program.write_text(source, encoding="utf-8")
        with output.open("wb") as stdout:
            process = subprocess.Popen(
                ["bpftrace", "-B", "line", str(program)], stdout=stdout, stderr=subprocess.PIPE, cwd=folder
            )
            try:
                _wait(process, output)
                for _ in range(_CALLS):
                    call(*arguments)
                if clock is not None:
                    for _ in range(_CALLS):
                        loaded.clock_gettime(time.CLOCK_BOOTTIME, arguments[0])
                time.sleep(0.5)
            finally:
                stop_bpftrace(process)
        records = [line.split(",") for line in output.read_text(encoding="ascii", errors="replace").splitlines()]
    posts = [(int(each[1]), int(each[2])) for each in records if each[0] == "PO" and each[3] == str(os.getpid())]
    if len(posts) < _CALLS // 2:
        raise MfulossError(f"only {len(posts)} of {_CALLS} calls were seen", where=libc, todo="try again")
    values = [leave - enter for enter, leave in posts]
    cuts = statistics.quantiles(values, n=20)
    median = round(statistics.median(values))
    after = [int(each[1]) for each in records if each[0] == "CX"]
    period_ns = statistics.median(later - earlier for (earlier, _), (later, _) in pairwise(posts))
    return ProbeCost(
        median,
        round(cuts[0]),
        round(cuts[-1]),
        len(values),
        function.function,
        min(median, round(statistics.median(after))) if after else None,
        max(median, round(period_ns - free_ns)),
    )


def _batch(call: Callable[..., object], arguments: list[ctypes.c_void_p]) -> float:
    """Mean time of a call, ns."""
    begin = time.perf_counter_ns()
    for _ in range(_CALLS // 40):
        call(*arguments)
    return (time.perf_counter_ns() - begin) / (_CALLS // 40)


def _wait(process: subprocess.Popen[bytes], output: Path) -> None:
    limit = time.monotonic() + 60
    while b"HB," not in output.read_bytes():
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


def _choose(libc: Library, target: Target | None) -> Target:
    wanted = True if target is None else target.cheap
    for name in _CANDIDATES:
        found = libc.symbol(name)
        if found is not None and found.cheap == wanted:
            return found
    raise MfulossError("no libc function begins like post_send does", where=libc.path)
