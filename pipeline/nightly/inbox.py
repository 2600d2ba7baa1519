"""The inbox: which folders are runs, of which job, and whether they have changed."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.nightly.settings import NightlyConfig

_DAY = re.compile(r"(?:night|nightly|day|run)?[-_. ]?\d[\dTZ:._-]*", re.IGNORECASE)
"""A folder name that is a date or a number: 2026-01-31, 20260131T0400Z, night-07."""
_DAY_AT_END = re.compile(r"[-_. ](?:night|day|run)?[-_. ]?\d{2,}[\dTZ:._-]*$", re.IGNORECASE)


@dataclass(frozen=True)
class Folder:
    """A run in the inbox. fingerprint: of its files' names, sizes and times; changed_ns: the last change of any."""

    path: Path
    run: str
    job: str
    fingerprint: str
    changed_ns: int


def find_folders(inbox: Path, settings: NightlyConfig) -> list[Folder]:
    """Folders of the inbox that hold the marker, by path; nothing is looked for inside one, nor in hidden folders."""
    found = []
    for top, folders, files in os.walk(inbox):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        path = Path(top)
        if path != inbox and any(Path(name).match(settings.inbox.marker) for name in files):
            folders.clear()
            relative = path.relative_to(inbox).as_posix()
            fingerprint, changed_ns = fingerprint_of(path)
            found.append(Folder(path, run_id_of(relative), job_of(relative, settings), fingerprint, changed_ns))
    return found


def run_id_of(relative: str) -> str:
    """A run's id from its folder below the inbox: moe/2026-01-31 → moe.2026-01-31. Other folder, other id."""
    plain = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_/-]{0,99}", relative)
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", relative.replace("/", ".")).lstrip("._-")[:100] or "run"
    return text if plain else f"{text}-{hashlib.sha256(relative.encode()).hexdigest()[:8]}"


def job_of(relative: str, settings: NightlyConfig) -> str:
    """The job's name: by the configured expression, else the path without what looks like a date or a number.

    moe/2026-01-31, 2026-01-31/moe and moe-2026-01-31 are all job moe.
    """
    if settings.inbox.job is not None:
        match = re.search(settings.inbox.job, relative)
        if match is not None:
            return match.groupdict().get("job") or match.group()
    parts = relative.split("/")
    kept = [part for part in parts if not _DAY.fullmatch(part)]
    if kept == parts:
        kept = parts[:-1] if len(parts) > 1 else [_DAY_AT_END.sub("", parts[0]) or parts[0]]
    return "/".join(kept) or "job"


def fingerprint_of(folder: Path) -> tuple[str, int]:
    """Of names, sizes and times of the files below, and the last change of any.

    Change times, not modification times: a copy that keeps the latter looks old while it is being written.
    """
    digest = hashlib.sha256()
    changed_ns = folder.stat().st_ctime_ns
    for top, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(top) / name
            try:
                status = path.stat()
            except OSError:
                continue
            changed_ns = max(changed_ns, status.st_ctime_ns)
            relative = path.relative_to(folder).as_posix()
            digest.update(f"{relative}\0{status.st_size}\0{status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest(), changed_ns
