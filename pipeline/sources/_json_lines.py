"""JSON objects, one a line or over several, in an array or not, with tokens that are no JSON (0x262ca50, ncclFloat32)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from pipeline.model.capture import Account
from pipeline.sources import _text

_LINE = re.compile(rb"^[ \t]*(\{.*\})[ \t]*,?[ \t]*$\n?", re.MULTILINE)
_BARE = re.compile(rb'(":\s*)(0x[0-9a-fA-F]+|\(nil\)|-?nan|-?inf|nccl[A-Za-z0-9_]+)(?=\s*[,}\]])')
_BRACKETS = re.compile(rb"^[\s\[\],]*$")
MAX_PENDING = 4 << 20


def objects(path: Path, account: Account) -> Iterator[list[str]]:
    """Blocks of objects as text, each on its own, in the file's order where each is on a line.

    Bare hexadecimal numbers and enumerators become text. What is no object is a bad line.
    """
    pending = b""
    for block, _ in _text.blocks(path):
        if b":" in block:
            block = _BARE.sub(rb'\1"\2"', block.replace(b"\r\n", b"\n"))
        found = [] if pending else _LINE.findall(block)
        rest = pending + block if pending else _LINE.sub(b"", block)
        texts = [each.decode("utf-8", "replace") for each in found]
        pending = b""
        if not _BRACKETS.match(rest):
            more, pending = _several_lines(rest, account)
            texts += more
        yield texts
    for line in pending.splitlines():
        account.bad_line(line)


def _several_lines(text: bytes, account: Account) -> tuple[list[str], bytes]:
    """Objects spread over lines: (objects, the start of one that the next block ends)."""
    decoder = json.JSONDecoder(parse_float=str)  # a double would round µs with a ns fraction
    found: list[str] = []
    rest = text.decode("utf-8", "replace")
    at = 0
    while (start := rest.find("{", at)) >= 0:
        for line in rest[at:start].splitlines():
            if line.strip(" \t[],"):
                account.bad_line(line.encode())
        try:
            value, end = decoder.raw_decode(rest, start)
        except (json.JSONDecodeError, RecursionError):
            after = rest.find("\n{", start + 1)
            if after < 0 and len(rest) - start < MAX_PENDING:
                return found, rest[start:].encode()
            end = len(rest) if after < 0 else after
            for line in rest[start:end].splitlines():
                account.bad_line(line.encode())
        else:
            found.append(json.dumps(value))
        at = end
    for line in rest[at:].splitlines():
        if line.strip(" \t[],"):
            account.bad_line(line.encode())
    return found, b""
