"""What manifest.json keeps of each input: written, read back, and found again among the inputs of a later ingest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pipeline.clocks.anchors import ClockMap, read_anchors
from pipeline.ingest.find import Input, printable
from pipeline.ingest.identify import READER_VERSION, Identified, capture_id_of
from pipeline.ingest.inspect import Inspected, content_hash
from pipeline.ingest.read import CaptureResult
from pipeline.model.capture import Anchor, Capture, Clock, Gpu, Process, Status
from pipeline.model.errors import UnusableInput
from pipeline.model.ranks import natural

Entry = dict[str, Any]
"""An input in the manifest, as JSON has it."""
_NO_RANK = "no rule gives its GPU processes a rank: its rows are in no breakdown; give [ranks] in run.toml"


def match(inspected: Sequence[Inspected], known: Iterable[Entry]) -> tuple[list[Inspected], list[str]]:
    """The run's inputs after this ingest, and remarks: the given ones, and the known ones that are not given again.

    A given input that is a known one goes on under its known name.
    """
    known = list(known)
    notes: list[str] = []
    by_content: dict[str, Inspected] = {}
    inputs: list[Inspected] = []
    for each in inspected:
        twin = by_content.get(each.sha256) if each.sha256 else None
        if twin is not None:
            notes.append(f"{each.input.name}: same content as {twin.input.name}; read once")
            continue
        by_content[each.sha256] = each
        inputs.append(each)
    taken: set[str] = set()
    for index, each in enumerate(inputs):
        entry = _known_as(each, [entry for entry in known if entry["name"] not in taken])
        if entry is not None:
            taken.add(entry["name"])
            inputs[index] = replace(each, input=replace(each.input, name=entry["name"]))
    inputs += [_remembered(entry) for entry in known if entry["name"] not in taken and entry["kind"] != "anchors"]
    return sorted(inputs, key=lambda each: natural(each.input.name)), notes


def _known_as(each: Inspected, free: Sequence[Entry]) -> Entry | None:
    """By content, else by name, else by the one name that is the end of the other."""
    name = each.input.name
    for entry in free:
        if each.sha256 and entry["sha256"] == each.sha256:
            return entry
    for entry in free:
        if entry["name"] == name:
            return entry
    return _alike(name, free)


def _alike(name: str, entries: Iterable[Entry]) -> Entry | None:
    near = [entry for entry in entries if name.endswith(f"/{entry['name']}") or entry["name"].endswith(f"/{name}")]
    return near[0] if len(near) == 1 else None


def anchor_entries(files: Sequence[Input], known: Iterable[Entry]) -> dict[str, Entry]:
    """The run's files of anchors after this ingest, by capture id: the known ones, with the given ones in their place."""
    by_name = {entry["name"]: entry for entry in known if entry["kind"] == "anchors"}
    for each in files:
        old = by_name.get(each.name) or _alike(each.name, by_name.values())
        name = each.name if old is None else old["name"]
        sha, size = content_hash(each.path)
        entry: Entry = {"name": name, "kind": "anchors", "sha256": sha, "bytes": size}
        entry |= {"path": printable(str(each.path)), "status": str(Status.OK), "reason": None, "anchors": []}
        try:
            entry["anchors"] = [asdict(anchor) for anchor in read_anchors(each.path)]
        except UnusableInput as error:
            entry |= {"status": str(Status.UNUSABLE), "reason": error.what}
        by_name[name] = entry
    return {
        capture_id_of(entry["sha256"], name): {**entry, "fingerprint": str(READER_VERSION)}
        for name, entry in by_name.items()
    }


def anchors_of(entry: Entry) -> list[Anchor]:
    """The anchors that a file, or a capture, was found to hold."""
    return [Anchor(**anchor) for anchor in entry.get("anchors", [])]


def entry_of(identified: Identified, result: CaptureResult | None) -> Entry:
    """A capture as it is after this ingest. result: None where it was not read."""
    each, clock = identified.inspected, identified.clock
    capture = each.capture
    entry: Entry = {
        "name": each.input.name,
        "path": printable(str(each.input.path)),
        "kind": each.kind,
        "sha256": each.sha256,
        "bytes": each.bytes,
        "host": identified.node,
        "status": str(Status.UNUSABLE),
        "reason": each.reason,
        "rows": 0,
        "fingerprint": identified.fingerprint,
    }
    if capture is None:
        return entry
    entry |= {
        "tool": capture.tool,
        "tool_version": capture.tool_version,
        "said_host": capture.host,
        "clock": str(capture.clock),
        "inspect_status": str(capture.status),
        "present": ", ".join(capture.present) or None,
        "missing": ", ".join(capture.missing) or None,
        "processes": [asdict(process) for process in capture.processes],
        "anchors": [asdict(anchor) for anchor in capture.anchors],
        "notes": list(capture.notes),
    }
    if result is not None:
        entry |= {
            "status": str(result.status),
            "reason": result.reason,
            "rows": sum(result.rows.values()),
            "rows_by_table": dict(sorted(result.rows.items())),
            "lost_events": result.lost_events,
            "probe_cost_ns": result.probe_cost_ns,
            "probe_exit_ns": result.probe_exit_ns,
            "probe_call_ns": result.probe_call_ns,
            "bad_lines": result.bad_lines,
            "first_ns": result.first_ns,
            "last_ns": result.last_ns,
        }
        if result.status is Status.OK and identified.rankless:
            entry |= {"status": str(Status.PARTIAL), "reason": _NO_RANK}
        if result.died:
            # A dead worker says nothing of its file: the next ingest tries again.
            entry["fingerprint"] = "try again"
        if clock is not None and result.first_ns is not None:
            # first_ns is on UTC already: what was added to reach it follows from the map at that instant.
            entry["offset_ns"] = _offset_at(clock, result.first_ns)
            entry["offset_error_ns"] = clock.error_ns
    return entry


def _remembered(entry: Entry) -> Inspected:
    """An input of the run that is not given again, as its manifest entry tells of it."""
    path = Path(entry["path"])
    given = Input(path, entry["name"], explicit=False)
    if "tool" not in entry:
        return Inspected(given, entry["kind"], entry["sha256"], entry["bytes"], None, entry["reason"])
    capture = Capture(
        path=path,
        kind=entry["kind"],
        tool=entry["tool"],
        tool_version=entry["tool_version"],
        host=entry["said_host"],
        clock=Clock(entry["clock"]),
        status=Status(entry["inspect_status"]),
        reason=entry["reason"],
        processes=tuple(
            Process(**{**each, "gpus": tuple(Gpu(**gpu) for gpu in each["gpus"])}) for each in entry["processes"]
        ),
        anchors=tuple(anchors_of(entry)),
        present=tuple(entry["present"].split(", ")) if entry["present"] else (),
        missing=tuple(entry["missing"].split(", ")) if entry["missing"] else (),
        notes=tuple(entry["notes"]),
        bytes=entry["bytes"],
    )
    return Inspected(given, entry["kind"], entry["sha256"], entry["bytes"], capture, capture.reason)


def _offset_at(clock: ClockMap, utc_ns: int) -> int:
    """What the map added to the time that it put at `utc_ns`."""
    t = utc_ns - clock.offset_ns
    for _ in range(3):
        t += utc_ns - clock.at(t)
    return utc_ns - t
