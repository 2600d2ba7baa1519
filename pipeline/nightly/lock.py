"""One nightly call a lake at a time."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.lake.transaction import host_name
from pipeline.model.errors import DiskFull, LakeError, UsageError, is_disk_full

LOCK = ".nightly.lock"


@contextmanager
def locked(lake: Path) -> Iterator[str | None]:
    """One call a lake at a time. The kernel drops the lock with its process, so a text that stays behind is stale.

    Yields a remark on such a text, if there was one. Raises UsageError where another call is at work, LakeError where
    the lake can't be locked or its disk is full.
    """
    boot = _boot_id()
    descriptor = os.open(lake / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        held = os.pread(descriptor, 4096, 0).decode("utf-8", "replace")
        try:
            # A record lock: unlike flock's it is not shared with children, who may outlive us.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise LakeError(f"can't lock the lake: {error.strerror}", where=lake / LOCK) from None
            who = _holder(held)
            raise UsageError(f"another nightly call is at work ({who})", where=lake, todo="wait for it") from None
        stale = None
        if held.strip():
            reason = "the machine was started anew since" if boot not in held else "it ended without clearing up"
            stale = f"stale lock of {_holder(held)}: {reason}"
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "boot_id": boot, "host": host_name()}).encode(), 0)
            yield stale
        except OSError as error:
            if is_disk_full(error):
                raise DiskFull(lake) from None
            raise
        finally:
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _holder(text: str) -> str:
    try:
        raw = json.loads(text)
        return f"process {raw['pid']} on {raw['host']}"
    except (ValueError, KeyError, TypeError):
        return "unknown process"


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown"
