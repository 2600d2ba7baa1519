"""Nsight Systems reports (`.nsys-rep`): exported with `nsys`, then read as a folder or SQLite export.

`nsys` is the one that $NSYS names, else the one on PATH. An export is kept by the report's content, in $MFULOSS_CACHE
or a folder of the user's below the system's temporary one, so that looking at a report and then reading it export
it once. After each export those go that were not used for two weeks, and the longest unused beyond 20 GB in all; never
one that was used in the last six hours, or that any process has in use.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.model.capture import Account, Capture
from pipeline.model.errors import UnusableInput
from pipeline.model.run import RunConfig
from pipeline.sources import nsys_sqlite

if TYPE_CHECKING:
    import pyarrow as pa

KIND = "nsys_rep"
CONTIGUOUS = True

NSYS_VARIABLE = "NSYS"
"""Environment variable that names the nsys program (a path, or a name on PATH); `--nsys` sets it."""
CACHE_VARIABLE = "MFULOSS_CACHE"
_SUFFIXES = (".nsys-rep", ".qdrep")
_LEFT_BEHIND = ".qdstrm"
_TIMEOUT_S = 6 * 3600
KEEP_BYTES = 20 * 10**9
KEEP_S = 14 * 86_400
SPARE_S = _TIMEOUT_S
"""What was used so lately stays whatever it takes: it may be read next, or still be written."""
_WORK_PREFIX = ".export-"
_CACHED = re.compile(r"[0-9a-f]{64}\.sqlite")


def claims(path: Path) -> bool:
    """A report by its name; also the unfinished .qdstrm, to say what it is."""
    return path.is_file() and path.suffix.lower() in (*_SUFFIXES, _LEFT_BEHIND)


def nsys_program() -> str | None:
    """The nsys to run: $NSYS, else the one on PATH; None where there is none."""
    named = os.environ.get(NSYS_VARIABLE)
    return shutil.which(named) if named else shutil.which("nsys")


def inspect(path: Path, config: RunConfig) -> Capture:
    """What the report holds. Raises UnusableInput where it can't be exported."""
    with exported(path) as file:
        capture = nsys_sqlite.inspect(file, config)
    return replace(capture, path=path, kind=KIND, bytes=path.stat().st_size)


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """See `pipeline.model.capture.Source.read`."""
    with exported(capture.path) as file:
        yield from nsys_sqlite.read(replace(capture, path=file), ranks, node, config, account)


def command(path: Path, output: Path | str, program: str = "nsys") -> list[str]:
    """The command that exports a report."""
    return [program, "export", "--type=sqlite", "--force-overwrite=true", f"--output={output}", str(path)]


@contextmanager
def exported(path: Path) -> Iterator[Path]:
    """`export`, and nobody prunes it meanwhile: the lock is shared by readers and goes with their process."""
    while True:
        cached = export(path)
        try:
            file = cached.open("rb")
        except FileNotFoundError:
            continue  # pruned between the two lines above
        with file:
            fcntl.flock(file, fcntl.LOCK_SH)
            if os.fstat(file.fileno()).st_nlink:  # else pruned before the lock was ours
                os.utime(cached)
                yield cached
                return


def prune(folder: Path, *, now_s: float | None = None) -> list[Path]:
    """Remove exports that are old or too much, and what interrupted exports left; what was removed."""
    now_s = time.time() if now_s is None else now_s
    removed, kept_bytes = [], 0
    entries = []
    for path in folder.iterdir():
        with suppress(OSError):  # another process prunes too
            entries.append((path, path.lstat()))
    for path, stat in sorted(entries, key=lambda entry: -entry[1].st_mtime):
        age_s = now_s - stat.st_mtime
        if path.name.startswith(_WORK_PREFIX) and age_s > SPARE_S:
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path)
        elif _CACHED.fullmatch(path.name):  # the folder may be one that somebody keeps other files in
            kept_bytes += stat.st_size
            if age_s > SPARE_S and (age_s > KEEP_S or kept_bytes > KEEP_BYTES) and _remove_unused(path):
                kept_bytes -= stat.st_size
                removed.append(path)
    return removed


def _remove_unused(path: Path) -> bool:
    """Whether it is gone: not while anyone holds it."""
    with suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
        return True
    return False


def export(path: Path) -> Path:
    """The SQLite export of a report, from the cache where it is known. Raises UnusableInput."""
    if path.suffix.lower() == _LEFT_BEHIND:
        raise UnusableInput(
            "a raw event stream that nsys never made into a report: profiling was cut off or its import failed",
            where=path,
            todo=f"import it where it was recorded: QdstrmImporter -i {path.name}",
        )
    try:
        with path.open("rb") as file:
            head = file.read(40)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UnusableInput(f"can't read it: {error.strerror}", where=path) from None
    if head.startswith(b"version https://git-lfs"):
        raise UnusableInput("a Git LFS pointer, not the file itself", where=path, todo="fetch it with `git lfs pull`")
    if not head:
        raise UnusableInput("an empty file", where=path, todo="copy it again")
    cached = _cache() / f"{digest}.sqlite"
    if cached.is_file():
        return cached  # put there by a rename: whole
    program = nsys_program()
    if program is None:
        shown = " ".join(command(Path(path.name), path.with_suffix(".sqlite").name))
        named = os.environ.get(NSYS_VARIABLE)
        raise UnusableInput(
            f"needs nsys to export it, and {named} can't be run"
            if named
            else "needs nsys to export it, and none is on PATH or in $NSYS",
            where=path,
            todo=f"where Nsight Systems is installed run: {shown}",
        )
    return _run(path, program, cached)


def _run(path: Path, program: str, cached: Path) -> Path:
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix=_WORK_PREFIX) as folder:
        output = Path(folder) / "export.sqlite"
        try:
            done = subprocess.run(
                command(path, output, program),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnusableInput(f"nsys could not be run: {error}", where=path) from None
        if done.returncode != 0 or not output.is_file():
            lines = [line.strip() for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
            said = next((line for line in reversed(lines) if "rror" in line), lines[-1] if lines else "no message")
            raise UnusableInput(
                f"nsys could not export it ({said[-300:]})",
                where=path,
                todo="use an nsys at least as new as the one that recorded it",
            )
        output.replace(cached)
    prune(cached.parent)
    return cached


def _cache() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    folder = Path(tempfile.gettempdir()) / f"mfuloss-nsys-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.is_symlink():
        raise UnusableInput(
            "the folder for exports belongs to somebody else", where=folder, todo=f"set ${CACHE_VARIABLE}"
        )
    return folder
