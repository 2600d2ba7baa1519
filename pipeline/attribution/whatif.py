"""What would bring it back: messages replayed under a change, over all ranks, and the target solver.

Never from subtracting a bar. For each communication operation of a typical step, each rank's messages run through
its proxies and NICs again (`replay`), unchanged and changed. An operation ends when its last rank is done, so the step
gains what the latest finish gains, and never more than what is exposed. The replay of the unchanged trace is compared
with the trace: above `MAX_ERROR` there is no expected value, only bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.attribution.database import add_categories, ensure_all
from pipeline.attribution.replay import Ints, Messages, wire_ns
from pipeline.attribution.replay import replay as run_messages
from pipeline.model import categories, library
from pipeline.model.errors import UsageError
from pipeline.model.hardware import LINKS
from pipeline.model.run import RunConfig

if TYPE_CHECKING:
    import duckdb

    from pipeline.lake.layout import RunDir

MAX_ERROR = 0.05
"""Relative error of the unchanged replay above which no expected value is given."""
GPU_POST_NS = 1_000
"""What a GPU spends on a message that it posts itself, serial; assumed (the value of the contract's worked example)."""
FP8_BYTES = Fraction(33, 64)
"""Bytes of a BF16 token in FP8 with a 4-byte scale for each 128 values: (128 + 4) / 256."""


@dataclass(frozen=True)
class Traffic:
    """The messages of one rank in one operation, and how they run.

    outstanding: limit on messages in flight, None for any number. staging_ns: time before the first post that the
    change adds (NVLink hops). overlapped: the operation hides behind compute.
    """

    messages: Messages
    beta_bytes_per_s: int
    rtt0_ns: int
    outstanding: int | None = None
    staging_ns: int = 0
    overlapped: bool = False

    @cached_property
    def finish_ns(self) -> int:
        """End of the last completion after the operation's start."""
        if len(self.messages) == 0:
            return 0
        done = run_messages(
            self.messages, beta_bytes_per_s=self.beta_bytes_per_s, rtt0_ns=self.rtt0_ns, outstanding=self.outstanding
        )
        return self.staging_ns + done.finish_ns


@dataclass(frozen=True)
class Part:
    """One rank's share of one operation: when it began and how long it was exposed, ns; its traffic; what was seen."""

    rank: int
    start_ns: int
    exposed_ns: int
    observed_ns: int
    traffic: Traffic
    off_cpu_ns: Ints
    gpus_per_node: int
    dispatch: bool


Bounds = tuple[Traffic, Traffic, Traffic]
"""A part's traffic under a change: pessimistic, expected, optimistic."""


@dataclass(frozen=True)
class Change:
    """A change that can be replayed. `apply` gives a part's traffic under it."""

    name: str
    text: str
    formula: str
    evidence: str
    apply: Callable[[Part], Bounds]
    applies: Callable[[Part], bool] = lambda part: len(part.traffic.messages) > 0


def _cpu(traffic: Traffic, **columns: Any) -> Traffic:
    return replace(traffic, messages=replace(traffic.messages, **columns))


def _gpu_initiated(part: Part) -> Bounds:
    free = _cpu(part.traffic, schedule_ns=0, wqe_ns=0, doorbell_ns=0)
    gpu = _cpu(free, doorbell_ns=GPU_POST_NS)
    serial = wire_ns(part.traffic.messages.column("bytes"), part.traffic.beta_bytes_per_s) + GPU_POST_NS
    # Nothing overlaps: each message's post and wire one after the other.
    alone = _cpu(free, doorbell_ns=serial, bytes=np.zeros(len(serial), np.int64))
    return replace(alone, outstanding=None), replace(gpu, outstanding=None), replace(free, outstanding=None)


def _pinned(part: Part) -> Bounds:
    schedule = part.traffic.messages.column("schedule_ns")
    long = np.where(part.off_cpu_ns >= 100_000, part.off_cpu_ns, 0)
    expected = _cpu(part.traffic, schedule_ns=schedule - part.off_cpu_ns)
    return _cpu(part.traffic, schedule_ns=schedule - long), expected, expected


def _more_proxies(part: Part) -> Bounds:
    messages = part.traffic.messages
    if part.traffic.outstanding is not None:
        return part.traffic, part.traffic, part.traffic  # the wait, not the proxy, is the bottleneck
    turn = np.arange(len(messages), dtype=np.int64)
    proxy = messages.column("proxy")
    half = _cpu(part.traffic, schedule_ns=messages.column("schedule_ns") // 2)
    return half, _cpu(part.traffic, proxy=proxy * 2 + turn % 2), _cpu(part.traffic, proxy=proxy * 4 + turn % 4)


def _merged(traffic: Traffic, factor: int) -> Traffic:
    """Each `factor` consecutive messages of a NIC and proxy become one that costs what one cost on average."""
    m = traffic.messages
    key = m.column("nic") * (int(m.column("proxy").max(initial=0)) + 1) + m.column("proxy")
    order = np.argsort(key, kind="stable")
    place = np.empty(len(m), np.int64)
    _, start, count = np.unique(key[order], return_index=True, return_counts=True)
    place[order] = np.arange(len(m)) - np.repeat(start, count)
    group = np.stack([key, place // factor])
    _, first, inverse = np.unique(group, axis=1, return_index=True, return_inverse=True)
    by_first = np.argsort(first, kind="stable")
    rank_of = np.empty(len(first), np.int64)
    rank_of[by_first] = np.arange(len(first))
    inverse = rank_of[np.ravel(inverse)]
    size = np.bincount(inverse)

    def mean(name: str) -> Ints:
        total = np.zeros(len(first), np.int64)
        np.add.at(total, inverse, m.column(name))
        result: Ints = total // size
        return result

    sent = np.zeros(len(first), np.int64)
    np.add.at(sent, inverse, m.column("bytes"))
    chosen = first[by_first]
    return replace(
        traffic,
        messages=Messages(
            bytes=sent,
            schedule_ns=mean("schedule_ns"),
            wqe_ns=mean("wqe_ns"),
            doorbell_ns=mean("doorbell_ns"),
            fetch_ns=m.column("fetch_ns")[chosen],
            excess_ns=mean("excess_ns"),
            proxy=m.column("proxy")[chosen],
            nic=m.column("nic")[chosen],
        ),
    )


def _two_hop(part: Part) -> Bounds:
    merged = _merged(part.traffic, max(1, part.gpus_per_node))
    nvlink = LINKS["nvlink4"]
    total = int(part.traffic.messages.column("bytes").sum())
    first = int(np.atleast_1d(np.asarray(merged.messages.bytes))[0])
    staged = replace(merged, staging_ns=nvlink.alpha_ns + int(wire_ns(first, nvlink.beta_bytes_per_s)))
    serial = replace(merged, staging_ns=nvlink.alpha_ns + int(wire_ns(total, nvlink.beta_bytes_per_s)))
    return serial, staged, merged


def _larger(part: Part) -> Bounds:
    return _merged(part.traffic, 2), _merged(part.traffic, 8), _merged(part.traffic, 64)


def _fire_and_forget(part: Part) -> Bounds:
    free = replace(part.traffic, outstanding=None)
    return replace(part.traffic, outstanding=2), free, free


def _fp8(part: Part) -> Bounds:
    size = part.traffic.messages.column("bytes")
    small = -(-size * FP8_BYTES.numerator // FP8_BYTES.denominator)
    shrunk = _cpu(part.traffic, bytes=small)
    return (shrunk, shrunk, shrunk) if part.dispatch else (part.traffic, part.traffic, part.traffic)


def _overlap(part: Part) -> Bounds:
    hidden = replace(part.traffic, overlapped=True)
    return hidden, hidden, hidden


CHANGES: dict[str, Change] = {
    change.name: change
    for change in (
        Change("gpu_initiated", "the GPU posts its messages itself (IBGDA, NCCL GIN)",
               "proxy time -> 1 us a message; optimistic: wire bound; pessimistic: 1 us + wire, serial", "assumed", _gpu_initiated),
        Change("pin_proxy", "proxy threads keep their cores", "runnable-but-not-running time -> 0; pessimistic: only slices of 0.1 ms and more",
               "inferred", _pinned, lambda part: bool(part.off_cpu_ns.sum() > 0)),
        Change("more_proxies", "two proxy threads a NIC (optimistic: four)", "messages in turn; pessimistic: only the loop time is halved",
               "modelled", _more_proxies),
        Change("two_hop", "aggregate over NVLink first, then one message a rail (two-hop, PXN)",
               "GPUs-per-node messages become one; NVLink staging before the first (pessimistic: before all)", "modelled", _two_hop),
        Change("larger_messages", "eight messages in one (pessimistic two, optimistic 64)", "same bytes, same cost a message", "modelled", _larger),
        Change("fire_and_forget", "post without waiting for each completion", "outstanding: 1 -> any number (pessimistic: 2)", "inferred",
               _fire_and_forget, lambda part: part.traffic.outstanding is not None),
        Change("fp8_dispatch", "dispatch tokens in FP8 with a scale for each 128 values", "bytes x 33/64 in dispatch operations", "modelled",
               _fp8, lambda part: part.dispatch and len(part.traffic.messages) > 0),
        Change("full_overlap", "communication wholly hidden behind compute", "exposed communication -> 0, not below the wire time", "modelled", _overlap),
    )
}  # fmt: skip
"""Every change by name, in the order in which several are applied together."""


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
    steps, ideal = _load(run_dir, config)
    if not steps or not any(step.operations for step in steps):
        raise UsageError("no communication to change was captured in this run", todo="report says where its time went")
    error = replay_error(steps)
    base = Fraction(sum(step.wall_ns for step in steps), len(steps))
    floor = Fraction(sum(step.wall_ns - step.exposed_ns for step in steps), len(steps))
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
            bounds = [float(total) / len(steps) for total in totals]
            rows.append(_row(group, bounds, base, floor, error, ideal))
    rows.sort(
        key=lambda row: (row["optimistic_ns"] if row["expected_ns"] is None else row["expected_ns"], row["change"])
    )
    if target_mfu is not None:
        rows.append(_target(target_mfu, base, floor, ideal))
    return rows


def _row(
    group: Sequence[Change],
    bounds: list[float],
    base: Fraction,
    floor: Fraction,
    error: float | None,
    ideal: Fraction | None,
) -> dict[str, Any]:
    good = error is None or error <= MAX_ERROR
    points = None
    if ideal is not None and good:
        points = 100 * (float(ideal) / bounds[1] - float(ideal / base))
    if error is None:
        note = "no messages were captured: only the exposed time is known"
    else:
        note = f"replay of the unchanged trace is off by {100 * error:.2f} %"
        note += "" if good else ": no expected value"
    return {
        "change": " + ".join(change.name for change in group),
        "text": "; ".join(change.text for change in group),
        "pessimistic_ns": bounds[0],
        "expected_ns": bounds[1] if good else None,
        "optimistic_ns": bounds[2],
        "points": points,
        "formula": "; ".join(change.formula for change in group),
        "evidence": _weakest([change.evidence for change in group]),
        "note": note,
        "replay_error": error,
        "floor_ns": float(floor),
        "base_ns": float(base),
    }


def _weakest(levels: Sequence[str]) -> str:
    order = [level.value for level in categories.Evidence]
    return max(levels, key=order.index)


def _target(target_mfu: float, base: Fraction, floor: Fraction, ideal: Fraction | None) -> dict[str, Any]:
    if not 0 < target_mfu <= 100:
        raise UsageError(f"--target-mfu {target_mfu:g}: a percentage above 0 and up to 100")
    if ideal is None:
        raise UsageError(
            "no MFU is known for this run", todo="give [model] flops_per_step and [hardware] gpu in run.toml"
        )
    target = Fraction(target_mfu).limit_denominator(10_000)
    allowed = exposed_for_target(base, base - floor, ideal, target)
    reachable = allowed >= 0
    text = (
        f"for {target_mfu:g} % the exposed communication must be at most {float(allowed) / 1e6:.1f} ms a step (now {float(base - floor) / 1e6:.1f} ms)"
        if reachable
        else f"{target_mfu:g} % is out of reach by communication alone: without any it is {float(100 * ideal / floor):.2f} %"
    )
    return {
        "change": f"target {target_mfu:g} %",
        "text": text,
        "pessimistic_ns": None,
        "expected_ns": float(ideal * 100 / target) if reachable else None,
        "optimistic_ns": None,
        "points": float(target - 100 * ideal / base) if reachable else None,
        "formula": "exposed - (T - ideal / MFU)",
        "evidence": "modelled",
        "note": None,
        "replay_error": None,
        "floor_ns": float(floor),
        "base_ns": float(base),
        "allowed_exposed_ns": float(allowed),
    }


def _load(run_dir: RunDir, config: RunConfig) -> tuple[list[Step], Fraction | None]:
    connection = run_dir.connect(threads=2, memory_limit="4GB")
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
    fetch = config.network.fetch_ns or 0
    links = {
        (node, nic): (int(beta), int(rtt))
        for node, nic, beta, rtt in connection.execute(
            """SELECT node, nic, max(beta_bytes_per_s), min(rtt0_ns) FROM fits
               WHERE beta_bytes_per_s IS NOT NULL AND rtt0_ns IS NOT NULL GROUP BY node, nic"""
        ).fetchall()
    }
    per_node = connection.execute("SELECT max(n) FROM (SELECT count(*) AS n FROM ranks GROUP BY node)").fetchone()
    gpus = int(per_node[0] or 1) if per_node else 1
    operations = connection.execute(
        "SELECT step, op, rank, name, start_ns, end_ns, exposed_ns FROM whatif_operations ORDER BY step, op, rank"
    ).fetchall()
    dispatch = _dispatch_names({row[3] for row in operations})
    columns = connection.execute(
        """SELECT step, op, rank, node, nic, tid, bytes, gap_ns, off_cpu_ns, post_ns, excess_ns, chain, done_ns
           FROM whatif_messages ORDER BY step, op, rank"""
    ).fetchnumpy()
    keys = np.stack([np.asarray(columns[name], np.int64) for name in ("step", "op", "rank")], axis=1)
    edges = np.flatnonzero(np.any(np.diff(keys, axis=0) != 0, axis=1)) + 1 if len(keys) else np.empty(0, np.int64)
    rows_of = {
        tuple(int(v) for v in keys[rows[0]]): rows for rows in np.split(np.arange(len(keys)), edges) if len(rows)
    }
    steps: dict[int, dict[int, list[Part]]] = {}
    for step, op, rank, name, start, end, exposed in operations:
        rows = rows_of.get((step, op, rank), np.empty(0, np.int64))
        part = _part(columns, rows, links, fetch, gpus, rank, start, end, exposed, name in dispatch)
        steps.setdefault(step, {}).setdefault(op, []).append(part)
    walls = dict(connection.execute("SELECT step, wall_ns FROM whatif_steps").fetchall())
    return [
        Step(int(walls[step]), tuple(tuple(parts) for _, parts in sorted(by_op.items())))
        for step, by_op in sorted(steps.items())
    ]


def _dispatch_names(names: set[str | None]) -> set[str | None]:
    return {name for name in names if name and "dispatch" in name.lower()}


def _part(
    columns: dict[str, Any],
    rows: Ints,
    links: dict[tuple[Any, Any], tuple[int, int]],
    fetch: int,
    gpus: int,
    rank: int,
    start: int,
    end: int,
    exposed: int,
    dispatch: bool,
) -> Part:
    def column(name: str) -> Ints:
        return np.asarray(columns[name][rows], np.int64)

    empty = Traffic(Messages(bytes=np.empty(0, np.int64)), 10**9, 0)
    if len(rows) == 0:
        return Part(rank, start, exposed, end - start, empty, np.empty(0, np.int64), gpus, dispatch)
    node, nic = columns["node"][rows[0]], columns["nic"][rows]
    link = links.get((node, None if np.ma.is_masked(nic[0]) else nic[0]))
    if link is None:
        return Part(rank, start, exposed, end - start, empty, np.empty(0, np.int64), gpus, dispatch)
    chain = bool(np.asarray(columns["chain"][rows], bool).mean() >= 0.9)
    messages = Messages(
        bytes=column("bytes"),
        schedule_ns=column("gap_ns"),
        doorbell_ns=column("post_ns"),
        fetch_ns=fetch,
        excess_ns=column("excess_ns"),
        proxy=np.unique(column("tid"), return_inverse=True)[1].astype(np.int64),
        nic=np.unique(np.asarray([str(each) for each in np.ma.filled(nic, "")]), return_inverse=True)[1].astype(
            np.int64
        ),
    )
    if chain and len(np.unique(messages.column("proxy"))) > 1:
        chain = False  # several senders in turn: no single wait bounds them
    traffic = Traffic(messages, link[0], link[1], 1 if chain else None)
    return Part(rank, start, exposed, int(column("done_ns").max()), traffic, column("off_cpu_ns"), gpus, dispatch)
