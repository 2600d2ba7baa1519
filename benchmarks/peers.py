"""Other tools that install from PyPI, in an environment of their own, on the same file or as many events."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

PACKAGES = (
    "nsys-ai==0.3.0",
    "duckdb==1.5.5",
    "duckdb-extensions==1.5.5",
    "duckdb-extension-sqlite-scanner==1.5.5",
    "HolisticTraceAnalysis==0.5.0",
)
HTA_EVENTS = 1_000_000
"""HTA's time grows with events: more than these would take the whole run's time."""
LIMIT_S = 1200
"""How long a peer may take."""

_EXTENSION = "from duckdb_extensions import import_extension; import_extension('sqlite_scanner')"
_NSYS_AI = f"""
import json, shutil, subprocess, sys
from pathlib import Path
rows, program, *arguments = sys.argv[1:]
shutil.rmtree(Path(arguments[1]).with_suffix(".nsys-cache"), ignore_errors=True)
done = subprocess.run([program, *arguments], stdout=subprocess.DEVNULL, timeout={LIMIT_S})
assert done.returncode == 0, done.returncode
print(json.dumps({{"rows": int(rows)}}))
"""
_HTA = """
import json, sys
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}).get_temporal_breakdown(visualize=False)
assert len(found) == 1, found
print(json.dumps({"rows": int(sys.argv[2])}))
"""


def install(folder: Path) -> None:
    """A virtual environment with the peers; kept for the next time."""
    if not (folder / "bin" / "nsys-ai").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        # DuckDB looks for its extension under the home folder, where this puts the one that PyPI has.
        subprocess.run([str(folder / "bin" / "python"), "-c", _EXTENSION], check=True)


def nsys_ai(environment: Path, sqlite: Path, kernels: int) -> list[tuple[str, list[str]]]:
    """(name, command) of nsys-ai on the file, each without the cache that it leaves beside it.

    summary: its Parquet cache, then kernels by name and how busy the GPU was. warm: the cache, and which kernel belongs to
    which NVTX range. report, of the first second and of the whole range: the cache, summary, overlap of computation and
    communication, collectives, iterations, NVTX tree.
    """
    python, program = environment / "bin" / "python", environment / "bin" / "nsys-ai"
    rows = str(2 * kernels + kernels * 14 // 100)
    seconds = str(kernels // 100_000 + 1)
    wanted = (
        ("summary", ["summary", str(sqlite)]),
        ("warm", ["warm", str(sqlite)]),
        ("report of 1 s", ["report", str(sqlite), "--gpu", "0", "--trim", "0", "1"]),
        ("report", ["report", str(sqlite), "--gpu", "0", "--trim", "0", seconds]),
    )
    return [
        (f"nsys-ai {name}, cold", [str(python), "-c", _NSYS_AI, rows, str(program), *arguments])
        for name, arguments in wanted
    ]


def hta(environment: Path, folder: Path, events: int) -> tuple[str, list[str]]:
    """(name, command) of HTA's breakdown (busy with computation, communication, copies; idle) of a Chrome trace."""
    trace = folder / "hta.json"
    write_chrome(trace, events)
    return "HTA temporal breakdown", [str(environment / "bin" / "python"), "-c", _HTA, str(trace), str(events)]


def write_chrome(path: Path, events: int) -> None:
    """A PyTorch profiler trace: a launch and a kernel for each pair of events."""
    with path.open("w", encoding="utf-8") as out:
        out.write('{"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": [')
        for i in range(events // 2):
            name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" if i % 50 == 49 else f"gemm_{i % 41}"
            stream = 20 if i % 50 == 49 else 7
            ids = {"correlation": i + 1, "External id": i + 1}
            launch = {
                "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1,
                "ts": i * 10.0, "dur": 4.0, "args": ids,
            }  # fmt: skip
            kernel = {
                "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream,
                "ts": 200 + i * 10.0, "dur": 8.0, "args": {**ids, "stream": stream, "device": 0},
            }  # fmt: skip
            out.write(f"{',' if i else ''}\n{json.dumps(launch)},\n{json.dumps(kernel)}")
        out.write("]}\n")
