"""One atomic change of one run: staged beside the lake's runs, then swapped in by a rename.

A crash, a full disk or Ctrl-C at any point leaves the run as it was before, or as it is after.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import shutil
import socket
import uuid
from pathlib import Path
from types import TracebackType

from pipeline.lake.layout import RunDir, check_run_id
from pipeline.model.errors import DiskFull, LakeError, is_disk_full

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # linux/fs.h


class Transaction:
    """Context manager: `staging` is the run's next state, begun with hard links to its present files.

    `commit()` swaps it in; leaving the block without commit removes it. Files of the present state
    must be replaced (`RunDir.write` does), never written in place: they are shared by hard link.
    """

    def __init__(self, lake: Path, run_id: str) -> None:
        self.lake = lake
        self.run_id = check_run_id(run_id)
        self.target = lake / f"run={run_id}"
        self.staging = RunDir(lake / ".staging" / staging_name(run_id))
        self._done = False
        self._lock: int | None = None

    def __enter__(self) -> Transaction:
        try:
            self.staging.path.parent.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self.staging.path.mkdir()
            if self.target.exists():
                shutil.copytree(self.target, self.staging.path, dirs_exist_ok=True, copy_function=_link)
        except OSError as error:
            self._discard()
            self._release_lock()
            raise write_error(self.lake, error) from None
        except BaseException:
            self._discard()
            self._release_lock()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._done:
            self._discard()
        self._release_lock()
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise write_error(self.lake, error) from error

    def commit(self) -> None:
        """Make the staged state the run's state. Empty folders, spill and work files are left out."""
        shutil.rmtree(self.staging.path / ".spill", ignore_errors=True)
        shutil.rmtree(self.staging.path / "_work", ignore_errors=True)
        try:
            for folder in [p for p in self.staging.path.iterdir() if p.is_dir()]:
                if not any(folder.iterdir()):
                    folder.rmdir()
            _sync(self.staging.path)
            if self.target.exists():
                _exchange(self.staging.path, self.target)
            else:
                self.staging.path.rename(self.target)
            _sync_folder(self.lake)
        except OSError as error:
            raise write_error(self.lake, error) from None
        self._done = True
        self._discard()

    def _take_lock(self) -> None:
        """One writer a run: a second one would begin from a state that the first is about to replace."""
        self._lock = os.open(self.lake / ".staging" / f".{self.run_id}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LakeError(
                f"another process is writing run {self.run_id}", where=self.lake, todo="try again when it is done"
            ) from None

    def _release_lock(self) -> None:
        # The file stays: removing it would let a third process lock another file of the same name.
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _discard(self) -> None:
        shutil.rmtree(self.staging.path, ignore_errors=True)


def write_error(lake: Path, error: OSError) -> LakeError:
    """What the system says of a lake that could not be written, for the user."""
    if is_disk_full(error):
        return DiskFull(lake)
    return LakeError(f"can't write the lake: {error.strerror}", where=lake, todo="check its path and permissions")


def host_name() -> str:
    """This host, fit for a part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", socket.gethostname())


def staging_name(run_id: str) -> str:
    """A new name under .staging: run, host, process id and a random part, apart by dots."""
    return f"{run_id}.{host_name()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _sync(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    _sync_folder(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange(new: Path, old: Path) -> None:
    """Swap two folders in one step (Linux renameat2); where the file system can't, two renames."""
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)
    if rename is not None:
        status = rename(_AT_FDCWD, os.fsencode(new), _AT_FDCWD, os.fsencode(old), _RENAME_EXCHANGE)
        if status == 0:
            return
        if ctypes.get_errno() not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(old))
    aside = new.with_name(new.name + ".old")
    old.rename(aside)
    try:
        new.rename(old)
    except OSError:
        aside.rename(old)
        raise
    aside.rename(new)
