"""What would bring it back: messages replayed under a change, over all ranks, and the target solver.

Never from subtracting a bar. For each communication operation of a typical step, each rank's messages run through
its proxies and NICs again (`replay`), unchanged and changed. An operation ends when its last rank is done, so the step
gains what the latest finish gains, and never more than what is exposed. The replay of the unchanged trace is compared
with the trace: above `MAX_ERROR` there is no expected value, only bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.attribution.changes import CHANGES, Bounds, Change, Part, Traffic
from pipeline.attribution.database import add_categories, ensure_all
from pipeline.attribution.replay import Ints, Messages, wire_ns
from pipeline.model import categories, library
from pipeline.model.errors import UsageError
from pipeline.model.run import RunConfig

if TYPE_CHECKING:
    import duckdb

    from pipeline.lake.layout import RunDir

MAX_ERROR = 0.05
"""Relative error of the unchanged replay above which no expected value is given."""


@dataclass(frozen=True)
class Step:
    """A replayed step: its duration, and the parts of its operations, an operation a list."""

    wall_ns: int
    operations: tuple[tuple[Part, ...], ...]

    @property
    def exposed_ns(self) -> int:
        """What no change can exceed: per operation the least that any rank has exposed."""
        return sum(min(p.exposed_ns for p in parts) for parts in self.operations if parts)


def _finish(parts: Sequence[Part], traffic: Sequence[Traffic]) -> int:
    origin = min(part.start_ns for part in parts)
    return max(part.start_ns - origin + each.finish_ns for part, each in zip(parts, traffic, strict=True))


def replay_error(steps: Sequence[Step]) -> float | None:
    """Relative error of the unchanged replay: its operations' total against the observed one; None without messages."""
    replayed = observed = 0
    for step in steps:
        for parts in step.operations:
            sending = [part for part in parts if len(part.traffic.messages)]
            if sending:
                replayed += _finish(sending, [part.traffic for part in sending])
                origin = min(part.start_ns for part in sending)
                observed += max(part.start_ns - origin + part.observed_ns for part in sending)
    return abs(replayed - observed) / observed if observed else None


def changed_wall_ns(step: Step, changes: Sequence[Change]) -> tuple[int, int, int]:
    """Duration of a step under the changes together: (pessimistic, expected, optimistic), ns."""
    saved = [0, 0, 0]
    # Overlap needs no messages: it holds for communication of which only the exposed time is known.
    hidden = any(change.name == "full_overlap" for change in changes)
    for parts in step.operations:
        if not parts:
            continue
        base = _finish(parts, [part.traffic for part in parts])
        exposed = min(part.exposed_ns for part in parts)
        for bound, traffic in enumerate(zip(*(_under(part, changes) for part in parts), strict=True)):
            if hidden or any(each.overlapped for each in traffic):
                saved[bound] += exposed
            else:
                saved[bound] += min(exposed, max(0, base - _finish(parts, traffic)))
    result = [step.wall_ns - each for each in saved]
    if hidden:
        result = [max(wall, floor) for wall, floor in zip(result, _wire_floors(step, changes), strict=True)]
    pessimistic, expected, optimistic = result
    # A coarser bound never beats a finer one, whatever merging does to single messages.
    expected = min(expected, pessimistic)
    return pessimistic, expected, min(optimistic, expected)


def _under(part: Part, changes: Sequence[Change]) -> Bounds:
    """A part's traffic under the changes, one after the other, for each bound."""
    bounds = [part, part, part]
    for change in changes:
        # Each is asked once, where bounds don't differ yet.
        changed = {id(each): change.apply(each) for each in {id(p): p for p in bounds}.values() if change.applies(each)}
        bounds = [_with(p, changed[id(p)][bound]) if id(p) in changed else p for bound, p in enumerate(bounds)]
    pessimistic, expected, optimistic = (each.traffic for each in bounds)
    return pessimistic, expected, optimistic


def _with(part: Part, traffic: Traffic) -> Part:
    if len(traffic.messages) == len(part.off_cpu_ns):
        return replace(part, traffic=traffic)
    return replace(part, traffic=traffic, off_cpu_ns=np.zeros(len(traffic.messages), np.int64))


def _wire_floors(step: Step, changes: Sequence[Change]) -> list[int]:
    """Wire time of the busiest rank for each bound: what overlap can't hide; pessimistic: all that its messages take."""
    others = [change for change in changes if change.name != "full_overlap"]
    busy: list[dict[int, int]] = [{}, {}, {}]
    for parts in step.operations:
        for part in parts:
            for bound, traffic in enumerate(_under(part, others)):
                if bound == 0:
                    took = traffic.finish_ns
                else:
                    took = int(wire_ns(traffic.messages.column("bytes"), traffic.beta_bytes_per_s).sum())
                busy[bound][part.rank] = busy[bound].get(part.rank, 0) + took
    return [max(of_rank.values(), default=0) for of_rank in busy]


def exposed_for_target(
    wall_ns: Fraction, exposed_ns: Fraction, ideal_ns: Fraction, target_percent: Fraction
) -> Fraction:
    """Most exposed communication a step may have to reach an MFU: exposed - (T - ideal / MFU); negative: out of reach."""
    return exposed_ns - (wall_ns - ideal_ns * 100 / target_percent)


def whatif(
    run_dir: RunDir,
    config: RunConfig,
    changes: Sequence[str] | None = None,
    *,
    together: bool = False,
    target_mfu: float | None = None,
) -> list[dict[str, Any]]:
    """Rows of what changes would give, best first: change, text, pessimistic_ns, expected_ns, optimistic_ns, points,
    formula, evidence, note, replay_error, floor_ns, base_ns.

    changes: names of `CHANGES` (None: each that applies). together: one row for all of them at once. target_mfu adds
    a row that says how much exposed communication an MFU allows. Raises UsageError for an unknown change, and where
    the run has no steps or no exposed communication to change.
    """
    for name in changes or ():
        if name not in CHANGES:
            raise UsageError(f"unknown change {name}", todo=f"known: {', '.join(CHANGES)}")
    steps, ideal_ns = _load(run_dir, config)
    if not steps or not any(step.operations for step in steps):
        raise UsageError("no communication to change was captured in this run", todo="report says where its time went")
    error = replay_error(steps)
    base_ns = Fraction(sum(step.wall_ns for step in steps), len(steps))
    floor_ns = Fraction(sum(step.wall_ns - step.exposed_ns for step in steps), len(steps))
    chosen = [CHANGES[name] for name in CHANGES if changes is None or name in changes]
    chosen = [
        c
        for c in chosen
        if any(c.applies(p) or c.name == "full_overlap" for s in steps for o in s.operations for p in o)
    ]
    sets = [chosen] if together else [[change] for change in chosen]
    rows = []
    for group in sets:
        if group:
            totals = np.sum([changed_wall_ns(step, group) for step in steps], axis=0)
            bounds_ns = [float(total) / len(steps) for total in totals]
            rows.append(_row(group, bounds_ns, base_ns, floor_ns, error, ideal_ns))
    rows.sort(
        key=lambda row: (row["optimistic_ns"] if row["expected_ns"] is None else row["expected_ns"], row["change"])
    )
    if target_mfu is not None:
        rows.append(_target(target_mfu, base_ns, floor_ns, ideal_ns))
    return rows


def _row(
    group: Sequence[Change],
    bounds_ns: list[float],
    base_ns: Fraction,
    floor_ns: Fraction,
    error: float | None,
    ideal_ns: Fraction | None,
) -> dict[str, Any]:
    good = error is None or error <= MAX_ERROR
    points = None
    if ideal_ns is not None and good:
        points = 100 * (float(ideal_ns) / bounds_ns[1] - float(ideal_ns / base_ns))
    if error is None:
        note = "no message of these operations was captured: only the exposed time is known"
    else:
        note = f"replay of the unchanged trace is off by {100 * error:.2f} %"
        note += "" if good else ": no expected value"
    return {
        "change": " + ".join(change.name for change in group),
        "text": "; ".join(change.text for change in group),
        "pessimistic_ns": bounds_ns[0],
        "expected_ns": bounds_ns[1] if good else None,
        "optimistic_ns": bounds_ns[2],
        "points": points,
        "formula": "; ".join(change.formula for change in group),
        "evidence": _weakest([change.evidence for change in group]),
        "note": note,
        "replay_error": error,
        "floor_ns": float(floor_ns),
        "base_ns": float(base_ns),
    }


def _weakest(levels: Sequence[str]) -> str:
    order = [level.value for level in categories.Evidence]
    return max(levels, key=order.index)


def _target(target_mfu: float, base_ns: Fraction, floor_ns: Fraction, ideal_ns: Fraction | None) -> dict[str, Any]:
    if not 0 < target_mfu <= 100:
        raise UsageError(f"--target-mfu {target_mfu:g}: a percentage above 0 and up to 100")
    if ideal_ns is None:
        raise UsageError(
            "no MFU is known for this run", todo="give [model] flops_per_step and [hardware] gpu in run.toml"
        )
    target = Fraction(target_mfu).limit_denominator(10_000)
    allowed_ns = exposed_for_target(base_ns, base_ns - floor_ns, ideal_ns, target)
    reachable = allowed_ns >= 0
    text = (
        f"for {target_mfu:g} % the exposed communication must be at most {float(allowed_ns) / 1e6:.1f} ms a step (now {float(base_ns - floor_ns) / 1e6:.1f} ms)"
        if reachable
        else f"{target_mfu:g} % is out of reach by communication alone: without any it is {float(100 * ideal_ns / floor_ns):.2f} %"
    )
    return {
        "change": f"target {target_mfu:g} %",
        "text": text,
        "pessimistic_ns": None,
        "expected_ns": float(ideal_ns * 100 / target) if reachable else None,
        "optimistic_ns": None,
        "points": float(target - 100 * ideal_ns / base_ns) if reachable else None,
        "formula": "exposed - (T - ideal / MFU)",
        "evidence": "modelled",
        "note": None,
        "replay_error": None,
        "floor_ns": float(floor_ns),
        "base_ns": float(base_ns),
        "allowed_exposed_ns": float(allowed_ns),
    }


def _load(run_dir: RunDir, config: RunConfig) -> tuple[list[Step], Fraction | None]:
    connection = run_dir.connect(threads=2, memory_limit="2GB")
    try:
        ensure_all(connection, ("steps", "segments", "rdma_messages", "fits", "run_facts"))
        add_categories(connection)
        for name in ("whatif_steps", "whatif_operations", "whatif_messages"):
            connection.execute(library.sql(name))
        if connection.execute("SELECT bool_and(source = 'window') FROM steps").fetchone() == (True,):
            raise UsageError(
                "no steps were found in this run, so there is no step time to change",
                todo="name the steps' ranges, [steps] pattern in run.toml",
            )
        return _steps(connection, config), _ideal(connection)
    finally:
        connection.close()


def _ideal(connection: duckdb.DuckDBPyConnection) -> Fraction | None:
    found = connection.execute("SELECT value FROM run_facts WHERE name = 'ideal_step_ns'").fetchone()
    return Fraction(found[0]) if found else None


def _steps(connection: duckdb.DuckDBPyConnection, config: RunConfig) -> list[Step]:
    """The replayed steps, fetched an operation at a time: all messages of a step at once are a multiple of what is kept."""
    connection.execute(
        """CREATE TEMP TABLE whatif_paths AS SELECT row_number() OVER (ORDER BY node, nic) - 1 AS path, node, nic
           FROM (SELECT DISTINCT node, nic FROM whatif_messages)"""
    )
    links = {
        path: (int(beta), int(rtt))
        for path, beta, rtt in connection.execute(
            """SELECT p.path, max(f.beta_bytes_per_s), min(f.rtt0_ns)
               FROM whatif_paths AS p
               JOIN fits AS f ON p.node IS NOT DISTINCT FROM f.node AND p.nic IS NOT DISTINCT FROM f.nic
               WHERE f.beta_bytes_per_s IS NOT NULL AND f.rtt0_ns IS NOT NULL GROUP BY p.path"""
        ).fetchall()
    }
    per_node = connection.execute("SELECT max(n) FROM (SELECT count(*) AS n FROM ranks GROUP BY node)").fetchone()
    gpus = int(per_node[0] or 1) if per_node else 1
    operations = connection.execute(
        "SELECT step, op, rank, name, start_ns, end_ns, exposed_ns FROM whatif_operations ORDER BY step, op, rank"
    ).fetchall()
    dispatch = _dispatch_names({row[3] for row in operations})
    steps: dict[int, list[tuple[Part, ...]]] = {}
    for (step, op), participants in groupby(operations, key=itemgetter(0, 1)):
        columns = connection.execute(
            """SELECT m.rank, p.path, m.tid, m.bytes, m.gap_ns, m.off_cpu_ns, m.post_ns, m.excess_ns, m.chain, m.done_ns
               FROM whatif_messages AS m
               JOIN whatif_paths AS p ON m.node IS NOT DISTINCT FROM p.node AND m.nic IS NOT DISTINCT FROM p.nic
               WHERE m.step = $1 AND m.op = $2 ORDER BY m.rowid""",
            [step, op],
        ).fetchnumpy()
        own = np.asarray(columns["rank"], np.int64)
        parts = [
            _part(
                columns,
                slice(*np.searchsorted(own, (rank, rank + 1))),
                links,
                config.network.fetch_ns or 0,
                gpus,
                (rank, start, end, exposed),
                name in dispatch,
            )
            for _, _, rank, name, start, end, exposed in participants
        ]
        steps.setdefault(step, []).append(tuple(parts))
    walls = dict(connection.execute("SELECT step, wall_ns FROM whatif_steps").fetchall())
    return [Step(int(walls[step]), tuple(operations)) for step, operations in sorted(steps.items())]


def _dispatch_names(names: set[str | None]) -> set[str | None]:
    return {name for name in names if name and "dispatch" in name.lower()}


def _part(
    columns: dict[str, Any],
    rows: slice,
    links: Mapping[int, tuple[int, int]],
    fetch_ns: int,
    gpus: int,
    participant: tuple[int, int, int, int],
    dispatch: bool,
) -> Part:
    """A rank's part of an operation; without messages where their link's constants are not known. rows: its messages."""

    def column(name: str) -> Ints:
        return np.asarray(columns[name][rows], np.int64)

    rank, start_ns, end_ns, exposed_ns = participant
    path = column("path")
    link = links.get(int(path[0])) if len(path) else None
    if link is None:
        none = Traffic(Messages(bytes=np.empty(0, np.int64)), 10**9, 0)
        return Part(rank, start_ns, exposed_ns, end_ns - start_ns, none, np.empty(0, np.int64), gpus, dispatch)
    chain = bool(np.asarray(columns["chain"][rows], bool).mean() >= 0.9)
    messages = Messages(
        bytes=column("bytes"),
        schedule_ns=column("gap_ns"),
        doorbell_ns=column("post_ns"),
        fetch_ns=fetch_ns,
        excess_ns=column("excess_ns"),
        proxy=np.unique(column("tid"), return_inverse=True)[1].astype(np.int64),
        nic=np.unique(path, return_inverse=True)[1].astype(np.int64),
    )
    if chain and len(np.unique(messages.column("proxy"))) > 1:
        chain = False  # several senders in turn: no single wait bounds them
    traffic = Traffic(messages, link[0], link[1], 1 if chain else None)
    return Part(rank, start_ns, exposed_ns, int(column("done_ns").max()), traffic, column("off_cpu_ns"), gpus, dispatch)
