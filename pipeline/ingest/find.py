"""What the given paths hold: captures, clock anchors, run.toml."""

from __future__ import annotations

import glob
import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.model.errors import UsageError
from pipeline.model.ranks import natural

ANCHORS = "anchors.jsonl"
RUN_TOML = "run.toml"


@dataclass(frozen=True)
class Input:
    """A file or folder export to read. `name` is stable between calls: from the input folder on.

    explicit: the user named it, rather than a folder that holds it.
    """

    path: Path
    name: str
    explicit: bool


@dataclass(frozen=True)
class Found:
    """What the given paths hold. ignored: files in folders that no source claims."""

    inputs: tuple[Input, ...]
    anchors: tuple[Input, ...]
    configs: tuple[Path, ...]
    ignored: tuple[Path, ...]


def find_inputs(inputs: Sequence[str | Path]) -> Found:
    """Expand files, folders and globs. Raises UsageError for a path that is not there."""
    from pipeline.sources import source_of

    captures: dict[Path, Input] = {}
    anchors: dict[Path, Input] = {}
    configs: dict[Path, None] = {}
    ignored: list[Path] = []

    def take(path: Path, root: Path, explicit: bool) -> None:
        path = Path(os.path.normpath(path))
        name = path.relative_to(root.parent).as_posix()
        if path.name == RUN_TOML:
            configs[path] = None
        elif path.name == ANCHORS:
            anchors[path] = Input(path, printable(name), explicit)
        elif explicit or source_of(path) is not None:
            captures.setdefault(path, Input(path, printable(name), explicit))
        else:
            ignored.append(path)

    def walk(folder: Path, root: Path, seen: frozenset[Path]) -> None:
        real = folder.resolve()
        if real in seen:
            return
        for path in sorted(folder.iterdir(), key=lambda each: natural(each.name)):
            if path.name.startswith("."):
                continue
            if path.is_dir() and source_of(path) is None:
                walk(path, root, seen | {real})
            else:
                take(path, root, explicit=False)

    for given in inputs:
        for path in _expand(given):
            path = Path(os.path.abspath(path))  # noqa: PTH100 - keeps symbolic links: names stay the user's
            try:
                if path.is_dir() and source_of(path) is None:
                    walk(path, path, frozenset())
                else:
                    take(path, path.parent, explicit=True)
                    for beside in (RUN_TOML, ANCHORS):
                        if (path.parent / beside).is_file():
                            take(path.parent / beside, path.parent, explicit=False)
            except OSError as error:
                raise UsageError(f"can't read it: {error.strerror}", where=error.filename or path) from None
    _drop_other_forms(captures)
    return Found(tuple(captures.values()), tuple(anchors.values()), tuple(configs), tuple(ignored))


def _expand(given: str | Path) -> list[Path]:
    path = Path(given)
    if path.exists():
        return [path]
    if glob.has_magic(str(given)):
        matches = sorted(glob.glob(str(given), recursive=True), key=natural)  # noqa: PTH207 - the pattern may be absolute
        if matches:
            return [Path(match) for match in matches]
        raise UsageError("nothing matches", where=given, todo="check the pattern")
    if path.is_symlink():
        raise UsageError("a link to a file that is not there", where=given)
    raise UsageError("no such file or folder", where=given, todo="check the path")


def _drop_other_forms(captures: dict[Path, Input]) -> None:
    """One report in several forms in one folder is one capture: its .sqlite, else a folder export, else .nsys-rep."""
    stems: dict[Path, list[Path]] = defaultdict(list)
    for path in captures:
        stem = re.sub(r"(?:\.nsys-rep|\.sqlite|[._](?:pqtdir|arwdir|parquetdir|arrowdir))$", "", str(path))
        if stem != str(path):
            stems[Path(stem)].append(path)

    def preference(path: Path) -> int:
        return 0 if path.suffix == ".sqlite" else 2 if path.suffix == ".nsys-rep" else 1

    for forms in stems.values():
        for path in sorted(forms, key=lambda each: (preference(each), str(each)))[1:]:
            if not captures[path].explicit:
                del captures[path]


def default_run_id(inputs: Sequence[str | Path]) -> str:
    """The first input's name (a folder's, or a file's without suffix), made fit to name a folder."""
    path = Path(os.path.abspath(_expand(inputs[0])[0]))  # noqa: PTH100
    name = path.name if path.is_dir() else path.stem
    return (re.sub(r"[^A-Za-z0-9._-]+", "-", name).lstrip("._-") or "run")[:128]


def config_path(config: str | Path | None, found: Found) -> Path | None:
    """The run.toml that holds: the one given, else the one nearest to the top of the inputs; None where there is none.

    Raises UsageError where several that differ are as near.
    """
    if config is not None:
        return Path(config)
    if not found.configs:
        return None
    depth = min(len(path.parts) for path in found.configs)
    top = [path for path in found.configs if len(path.parts) == depth]
    if len({path.read_bytes() for path in top}) > 1:
        raise UsageError(
            f"{len(top)} different run.toml files",
            where=", ".join(str(path) for path in top),
            todo="name one with --config",
        )
    return top[0]


def printable(name: str) -> str:
    """A file's name as text that can be stored: bytes that are no UTF-8 as \\xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
