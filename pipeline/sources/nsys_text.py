"""Text of Nsight Systems exports: not always UTF-8, sometimes with NUL bytes, sometimes a process's environment.

An export keeps the profiled process's whole environment, in three places: rows of TARGET_INFO_SYSTEM_ENV, rows
of META_DATA_CAPTURE, and NUL-separated blocks among StringIds. Names outside the allow-list never leave here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pipeline.model.capture import ENVIRONMENT_ALLOW_LIST

if TYPE_CHECKING:
    import pyarrow as pa

_ASSIGNMENT = re.compile(rb"(?:^|\x00)[A-Za-z_][\w%().-]*=")
_ALLOWED = re.compile(ENVIRONMENT_ALLOW_LIST)


def is_environment_block(value: bytes) -> bool:
    """Whether a string is (part of) a NUL-separated environment block."""
    return b"\0" in value and _ASSIGNMENT.search(value) is not None


def clean(value: bytes) -> str | None:
    """`value` as text: bytes that are no UTF-8 and NULs replaced by U+FFFD; None for an environment block."""
    if is_environment_block(value):
        return None
    return value.rstrip(b"\0").decode("utf-8", "replace").replace("\0", "\ufffd")


def clean_array(values: pa.Array) -> pa.Array:
    """A binary array as a string array, each value as by `clean`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        text = values.cast(pa.string())
    except pa.ArrowInvalid:
        text = None
    if text is not None and not pc.any(pc.match_substring(text, "\0")).as_py():
        return text
    coded = values.cast(pa.binary()).dictionary_encode()
    fixed = [None if v is None else clean(v) for v in coded.dictionary.to_pylist()]
    return pa.array(fixed, pa.string()).take(coded.indices)


def allowed_variables(block: bytes | str, separators: str = "\0\n") -> dict[str, str]:
    """The allow-listed variables of an environment block (NAME=VALUE, separated)."""
    text = block.decode("utf-8", "replace") if isinstance(block, bytes) else block
    found: dict[str, str] = {}
    for piece in re.split(f"[{re.escape(separators)}]", text):
        name, equals, value = piece.partition("=")
        if equals and _ALLOWED.match(name):
            # META_DATA_CAPTURE quotes values, the other places don't.
            found[name] = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    return found


def is_allowed(name: str) -> bool:
    """Whether a variable's name is on the allow-list."""
    return _ALLOWED.match(name) is not None


def merge(blocks: Iterable[dict[str, str]]) -> tuple[dict[str, str], set[str]]:
    """Variables on which all blocks that have them agree, and the names on which they differ."""
    seen: dict[str, set[str]] = {}
    for block in blocks:
        for name, value in block.items():
            seen.setdefault(name, set()).add(value)
    agreed = {name: next(iter(values)) for name, values in seen.items() if len(values) == 1}
    return agreed, {name for name, values in seen.items() if len(values) > 1}
