"""What an input is: its content's hash, the source that reads it, and what that source says of it. No row is read."""

from __future__ import annotations

import hashlib
import importlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from pipeline.ingest.find import Input
from pipeline.model.capture import Capture, Status
from pipeline.model.errors import MfulossError, UnusableInput
from pipeline.model.run import RunConfig


@dataclass(frozen=True)
class InspectTask:
    """Work order for `inspect_capture`."""

    input: Input
    config: RunConfig


@dataclass(frozen=True)
class Inspected:
    """An input with its content's hash; `capture` is None where it can't be read, and `reason` says why."""

    input: Input
    kind: str | None
    sha256: str
    bytes: int
    capture: Capture | None
    reason: str | None

    @property
    def usable(self) -> bool:
        return self.capture is not None and self.capture.status is not Status.UNUSABLE


def inspect_capture(task: InspectTask) -> Inspected:
    """Inspect one input; a top-level function so that any worker can run it."""
    path = task.input.path
    with ThreadPoolExecutor(max_workers=1) as pool:
        # While the content is hashed, the interpreter is free: to look at it, and to load what will read it.
        hashing = pool.submit(content_hash, path)
        kind, capture, reason = _inspect(task)
        for library in ("duckdb", "pyarrow.parquet"):
            importlib.import_module(library)
    try:
        sha, size = hashing.result()
    except OSError as error:
        return Inspected(task.input, kind, _name_hash(path), 0, None, f"can't read it: {error.strerror or error}")
    if capture is None:
        return Inspected(task.input, kind, sha, size, None, reason)
    return Inspected(task.input, kind, sha, size, replace(capture, bytes=size), capture.reason)


def _inspect(task: InspectTask) -> tuple[str | None, Capture | None, str | None]:
    """(kind, capture, None), or why there is none."""
    from pipeline.sources import source_of

    path = task.input.path
    kind = None
    try:
        if path.is_file() and path.stat().st_size == 0:
            raise UnusableInput("an empty file", where=path)
        if _is_lfs_pointer(path):
            raise UnusableInput("a Git LFS pointer, not the file itself", where=path, todo="run: git lfs pull")
        source = source_of(path)
        if source is None:
            raise UnusableInput("not a trace that any source can read", where=path, todo="try: mfuloss doctor")
        kind = source.KIND
        return kind, source.inspect(path, task.config), None
    except MfulossError as error:
        what = f"{error.what}; {error.todo}" if error.todo else error.what
        return kind, None, " ".join(what.split())
    except OSError as error:
        return kind, None, f"can't read it: {error.strerror or error}"
    except Exception as error:  # noqa: BLE001 - one file's surprise must not stop the others
        return kind, None, surprise(error)


def content_hash(path: Path) -> tuple[str, int]:
    """SHA-256 of a file's content (of a folder export: of its files' names and contents) and its bytes."""
    if path.is_file():
        return _digest(path), path.stat().st_size
    whole = hashlib.sha256()
    size = 0
    for each in sorted(p for p in path.rglob("*") if p.is_file()):
        whole.update(f"{each.relative_to(path).as_posix()}\0{_digest(each)}\n".encode())
        size += each.stat().st_size
    return whole.hexdigest(), size


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    # Larger pieces than file_digest's: after each the thread waits for its turn in the interpreter.
    piece = memoryview(bytearray(8 << 20))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(piece):
            digest.update(piece[:count])
    return digest.hexdigest()


def _name_hash(path: Path) -> str:
    return hashlib.sha256(b"unreadable\0" + os.fsencode(path.name)).hexdigest()


def _is_lfs_pointer(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size > 1024:
        return False
    with path.open("rb") as file:
        return file.read(40).startswith(b"version https://git-lfs.github.com/spec")


def surprise(error: BaseException) -> str:
    text = " ".join(str(error).split())[:200]
    return f"reading it failed: {type(error).__name__}: {text}"
