"""Nsight Systems reports (`.nsys-rep`): exported with `nsys`, then read as a folder or SQLite export.

`nsys` is the one that $NSYS names, else the one on PATH. An export is kept by the report's content, in $MFULOSS_CACHE
or a folder of the user's below the system's temporary one, so that looking at a report and then reading it export
it once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
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


def claims(path: Path) -> bool:
    """A report by its name; also the unfinished .qdstrm, to say what it is."""
    return path.is_file() and path.suffix.lower() in (*_SUFFIXES, _LEFT_BEHIND)


def nsys_program() -> str | None:
    """The nsys to run: $NSYS, else the one on PATH; None where there is none."""
    named = os.environ.get(NSYS_VARIABLE)
    return shutil.which(named) if named else shutil.which("nsys")


def inspect(path: Path, config: RunConfig) -> Capture:
    """What the report holds. Raises UnusableInput where it can't be exported."""
    exported = nsys_sqlite.inspect(export(path), config)
    return replace(exported, path=path, kind=KIND, bytes=path.stat().st_size)


def read(
    capture: Capture, ranks: Mapping[int, int], node: str, config: RunConfig, account: Account
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """See `pipeline.model.capture.Source.read`."""
    yield from nsys_sqlite.read(replace(capture, path=export(capture.path)), ranks, node, config, account)


def command(path: Path, output: Path | str, program: str = "nsys") -> list[str]:
    """The command that exports a report."""
    return [program, "export", "--type=sqlite", "--force-overwrite=true", f"--output={output}", str(path)]


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
    with tempfile.TemporaryDirectory(dir=cached.parent, prefix=".export-") as folder:
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
