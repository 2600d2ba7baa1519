"""Brings a run's nodes onto one clock: that of the node of the lowest rank.

Ingest has placed every capture on its node's UTC. The collectives of the run say how those differ
(`pipeline.clocks.collectives`); the other nodes' files are rewritten on the run clock. What a file has been shifted by
is kept in the file, so that aligning twice changes nothing and files that come later are brought to where the others
are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.clocks.anchors import ClockMap
from pipeline.clocks.collectives import Constraints, Fit, NodeClock, fit
from pipeline.executor import map_tasks
from pipeline.lake.layout import PARQUET_OPTIONS, RunDir, open_connection, quote
from pipeline.model.library import sql
from pipeline.model.run import RunConfig
from pipeline.model.schema import EVENT_TABLES, TABLES

if TYPE_CHECKING:
    import duckdb

_FILE = "clocks"
_KEY = "mfuloss_clock"
_OWN_TABLES = ("clock_offsets", "clock_pairs")
_KNOTS = 9
_ALL_PAIRS_UP_TO = 64
_HUBS, _NEAR = 8, 4
"""Beyond `_ALL_PAIRS_UP_TO` nodes, pairs with the first 8 nodes and of nodes at most 4 apart: the work stays linear."""
_NOTHING_NEW_NS = 2
"""A second fit moves a node by rounding alone; that is not applied."""
_WORTH_A_POOL_BYTES, _WORTH_A_POOL_CAPTURES = 4 << 20, 16
_BEGINNING, _FOREVER = -(1 << 62), 1 << 62


@dataclass(frozen=True)
class Shift:
    """t + offset_ns + (t - at_ns) * drift_ppb / 1e9."""

    offset_ns: int = 0
    at_ns: int = 0
    drift_ppb: int = 0

    def at(self, t_ns: int) -> int:
        """The time that `t_ns` becomes (as the SQL macro on_run_clock)."""
        return ClockMap(self.offset_ns, self.at_ns, self.drift_ppb, 0).at(t_ns)

    def then(self, other: Shift) -> Shift:
        """This shift and then another, as one (within 1 ns)."""
        moved = self.at(self.at_ns)
        drift = self.drift_ppb + other.drift_ppb + round(self.drift_ppb * other.drift_ppb / 10**9)
        return Shift(other.at(moved) - self.at_ns, self.at_ns, drift)

    def back(self) -> Shift:
        """The shift that undoes this one (within 1 ns)."""
        moved = self.at(self.at_ns)
        drift = round(-self.drift_ppb / (1 + self.drift_ppb * 1e-9))
        return Shift(self.at_ns - moved, moved, drift)


@dataclass(frozen=True)
class MoveTask:
    """Work order for `move_capture`: a capture's files by table, and what shall have been applied to their times."""

    capture_id: str
    files: tuple[tuple[str, Path], ...]
    target: Shift


def align(run_dir: RunDir, config: RunConfig, *, jobs: int = 1, scheduler: str | None = None) -> None:
    """Put all nodes' times on the run clock; writes clock_offsets, clock_pairs and the clocks' run_facts.

    jobs: processes that rewrite files, a capture each. scheduler: address of a Dask scheduler to do so instead.
    Fills offset_ns and offset_error_ns of captures. A node that shares no collective with the reference is left on its
    own UTC and marked unaligned. Raises ClockContradiction that names two nodes where the collectives can't be.
    """
    state = _state(run_dir, config)
    stored = _stored(run_dir)
    if stored is not None and stored.get("state") == state:
        _shift_captures(run_dir, *_last_fit(stored))
        return
    connection = _connect(run_dir)
    try:
        nodes, reference = _nodes(connection)
        owners = _owners(connection)
    finally:
        connection.close()
    if reference is None:
        for table in _OWN_TABLES:
            run_dir.remove(table)
        return

    before = _settle(run_dir, owners, jobs, scheduler)
    found, counts = _fit(run_dir, config, nodes, reference, before)
    shifts: dict[str, Shift] = {}
    for clock in found.clocks:
        new, old = Shift(clock.offset_ns, clock.at_ns, clock.drift_ppb), before.get(clock.node, Shift())
        moved = max(abs(new.at(knot) - old.at(knot)) for knot in found.knots_ns)
        shifts[clock.node] = old if moved <= _NOTHING_NEW_NS else new
    _move(_files(run_dir, owners), {node: shifts.get(node, Shift()) for node in owners.values()}, jobs, scheduler)
    _write_tables(run_dir, found, shifts, counts, _cross_check(run_dir, owners))
    errors = {clock.node: clock.error_ns for clock in found.clocks if clock.aligned}
    _shift_captures(run_dir, shifts, errors)
    _remember(run_dir, _state(run_dir, config), shifts, errors)


# -- what has been done


def _state(run_dir: RunDir, config: RunConfig) -> str:
    """A fingerprint of the event files and of what run.toml says that a fit depends on."""
    files = [
        (table, file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for table in EVENT_TABLES
        if table not in (*_OWN_TABLES, "captures")
        for file in run_dir.files(table)
    ]
    stated = config.network.model_dump(mode="json", exclude_unset=True).get("clock_error_ns")
    text = repr((files, config.comm.model_dump(mode="json"), config.network.clock_error_ns, stated))
    return hashlib.sha256(text.encode()).hexdigest()


def _remember(run_dir: RunDir, state: str, shifts: Mapping[str, Shift], errors: Mapping[str, int]) -> None:
    text = json.dumps(
        {
            "state": state,
            "shifts": {node: _numbers(shift) for node, shift in sorted(shifts.items())},
            "errors_ns": dict(sorted(errors.items())),
        },
        indent=1,
    )
    target = run_dir.path / "clocks.json"
    partial = target.with_suffix(".partial")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(target)


def _stored(run_dir: RunDir) -> dict[str, Any] | None:
    try:
        return dict(json.loads((run_dir.path / "clocks.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _last_fit(stored: Mapping[str, Any]) -> tuple[dict[str, Shift], dict[str, int]]:
    return {node: Shift(*numbers) for node, numbers in stored["shifts"].items()}, dict(stored["errors_ns"])


# -- files


def _owners(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """capture_id → node, of the captures that are on their node's UTC."""
    return dict(
        connection.execute(
            "SELECT capture_id, host FROM captures WHERE offset_ns IS NOT NULL AND host IS NOT NULL ORDER BY capture_id"
        ).fetchall()
    )


def _files(run_dir: RunDir, owners: Mapping[str, str]) -> Iterable[tuple[str, Path, str]]:
    for table in EVENT_TABLES:
        if table in (*_OWN_TABLES, "captures") or not TABLES[table].time_columns:
            continue
        for file in run_dir.files(table):
            if file.stem in owners:
                yield table, file, owners[file.stem]


def _settle(run_dir: RunDir, owners: Mapping[str, str], jobs: int, scheduler: str | None) -> dict[str, Shift]:
    """Bring each node's new files to where its others are. The shift of each node that has one."""
    files = list(_files(run_dir, owners))
    applied = {file: shift for _, file, _ in files if (shift := _applied(file)) is not None}
    shifts: dict[str, Shift] = {}
    for _, file, node in files:
        if file in applied:
            shifts.setdefault(node, applied[file])
    _move(files, shifts, jobs, scheduler)
    return shifts


def _move(
    files: Iterable[tuple[str, Path, str]], shifts: Mapping[str, Shift], jobs: int, scheduler: str | None
) -> None:
    """Bring the files of the nodes in `shifts` to their shifts, a capture a task."""
    captures: dict[tuple[str, str], list[tuple[str, Path]]] = defaultdict(list)
    size = 0
    for table, file, node in files:
        if node in shifts and (_applied(file) or Shift()) != shifts[node]:
            captures[file.stem, node].append((table, file))
            size += file.stat().st_size
    tasks = [MoveTask(capture_id, tuple(found), shifts[node]) for (capture_id, node), found in sorted(captures.items())]
    # A process costs about as much as rewriting a few small files.
    alone = size < _WORTH_A_POOL_BYTES and len(tasks) < _WORTH_A_POOL_CAPTURES
    map_tasks(
        move_capture,
        tasks,
        jobs=1 if alone else jobs,
        scheduler=None if alone else scheduler,
        label=lambda task: f"capture {task.capture_id}, clocks",
    )


def move_capture(task: MoveTask) -> None:
    """Rewrite a capture's files on the run clock; a top-level function so that any worker can run it."""
    for table, file in task.files:
        _bring(table, file, task.target)


def _applied(file: Path) -> Shift | None:
    """What the file's times have been shifted by since ingest wrote it."""
    import pyarrow.parquet as pq

    text = (pq.read_metadata(file).metadata or {}).get(_KEY.encode())
    return None if text is None else Shift(*json.loads(text))


def _bring(table: str, file: Path, target: Shift) -> None:
    """Rewrite a file's times so that `target` is what has been applied since ingest. Streams; keeps the order."""
    now = _applied(file) or Shift()
    if now == target:
        return
    step = target if now == Shift() else now.back().then(target)
    numbers = f"{step.offset_ns:d}, {step.at_ns:d}, {step.drift_ppb:d}"
    columns = ", ".join(
        f"on_run_clock({name}, {numbers}) AS {name}" if name in TABLES[table].time_columns else name
        for name in TABLES[table].column_names
    )
    mark = quote(json.dumps(_numbers(target)))
    partial = file.with_suffix(".partial")
    connection = open_connection(memory_limit="700MB")
    try:
        connection.execute(sql("on_run_clock"))
        connection.execute(
            f"COPY (SELECT {columns} FROM read_parquet({quote(str(file))}, hive_partitioning = false)) "
            f"TO {quote(str(partial))} ({PARQUET_OPTIONS}, KV_METADATA {{{_KEY}: {mark}}})"
        )
    finally:
        connection.close()
    os.replace(partial, file)  # noqa: PTH105 - replaces atomically


def _shift_captures(run_dir: RunDir, shifts: Mapping[str, Shift], errors: Mapping[str, int]) -> None:
    """offset_ns, offset_error_ns, first_ns and last_ns of captures on the run clock.

    Ingest writes captures anew on each call, on the nodes' UTC; a file that is shifted already keeps, for each
    capture, what ingest wrote.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    for file in run_dir.files("captures"):
        table = pq.read_table(file, schema=TABLES["captures"].arrow_schema())
        text = (pq.read_metadata(file).metadata or {}).get(_KEY.encode())
        base: dict[str, list[int | None]] = json.loads(text) if text else {}
        rows = table.to_pylist()
        for row in rows:
            names = ("offset_ns", "offset_error_ns", "first_ns", "last_ns")
            was = base.setdefault(row["capture_id"], [row[name] for name in names])
            row.update(zip(names, was, strict=True))
            if row["offset_ns"] is None:
                continue
            shift = shifts.get(row["host"])
            if shift is not None and row["first_ns"] is not None:
                first = shift.at(row["first_ns"])
                row["offset_ns"] += first - row["first_ns"]
                row["first_ns"] = first
                row["last_ns"] = shift.at(row["last_ns"])
            row["offset_error_ns"] = (row["offset_error_ns"] or 0) + errors.get(row["host"], 0)
        shifted = pa.Table.from_pylist(rows, schema=table.schema)
        if shifted.equals(table) and text:
            continue
        partial = file.with_suffix(".partial")
        pq.write_table(
            shifted.replace_schema_metadata({_KEY: json.dumps(base)}), partial, compression="zstd", version="2.6"
        )
        partial.replace(file)


# -- the fit


def _numbers(shift: Shift) -> tuple[int, int, int]:
    return shift.offset_ns, shift.at_ns, shift.drift_ppb


def _connect(run_dir: RunDir) -> duckdb.DuckDBPyConnection:
    return run_dir.connect(threads=2, memory_limit="2GB")


def _nodes(connection: duckdb.DuckDBPyConnection) -> tuple[list[str], str | None]:
    """The nodes that have ranks, and the run clock's: that of the lowest rank, which comes first."""
    rows = connection.execute(
        "SELECT node FROM ranks WHERE node IS NOT NULL AND rank IS NOT NULL GROUP BY node ORDER BY min(rank), node"
    ).fetchall()
    nodes = [row[0] for row in rows]
    return nodes, nodes[0] if nodes else None


def _fit(
    run_dir: RunDir, config: RunConfig, nodes: Sequence[str], reference: str, before: Mapping[str, Shift]
) -> tuple[Fit, dict[str, int]]:
    """The fit of the nodes' UTC, and how many collectives each node's part of it rests on.

    before: what the files have been shifted by already. Operations are matched on those times, the fit undoes them:
    so it comes out the same in whatever order the files came.
    """
    connection = _connect(run_dir)
    try:
        if len(nodes) < 2:
            return fit(nodes, reference, {}, [0, 1]), {}
        connection.execute(
            "CREATE TEMP TABLE run_config AS SELECT $1::BIGINT AS clock_error_ns", [config.network.clock_error_ns]
        )
        groups = [(number, rank) for number, group in enumerate(config.comm.groups) for rank in group]
        _parameter(connection, "comm_groups", "group_id BIGINT, rank BIGINT", groups)
        _parameter(connection, "_clock_neighbours", "node VARCHAR, other_node VARCHAR", _neighbours(nodes))
        undo = [(node, *_numbers(before.get(node, Shift()).back())) for node in nodes]
        _parameter(connection, "_clock_undo", "node VARCHAR, offset_ns BIGINT, at_ns BIGINT, drift_ppb BIGINT", undo)
        for name in (
            "on_run_clock", "_operations", "_participants", "clock_say", "_clock_arrivals", "_clock_end_gaps",
        ):  # fmt: skip
            connection.execute(sql(name))
        gaps = connection.execute("SELECT node, other_node, say, gap_ns FROM _clock_end_gaps").fetchall()
        used, shifts = _connections(nodes, reference, gaps)
        _parameter(connection, "_clock_used", "node VARCHAR, other_node VARCHAR, say INTEGER", used)
        _parameter(connection, "_clock_shifts", "node VARCHAR, shift_ns BIGINT", sorted(shifts.items()))
        connection.execute(sql("_clock_bounds"))
        knots = _knots(connection)
        found = fit(
            nodes,
            reference,
            _constraints(connection),
            knots,
            shifts_ns=shifts,
            stated_error_ns=_stated(config),
        )
        counts = dict(
            connection.execute(
                """SELECT node, sum(collectives)::BIGINT FROM (
                    SELECT node, collectives FROM _clock_bounds
                    UNION ALL SELECT other_node, collectives FROM _clock_bounds
                ) GROUP BY node ORDER BY node"""
            ).fetchall()
        )
    finally:
        connection.close()
    clocks = tuple(
        NodeClock(
            clock.node,
            clock.offset_ns + shifts[clock.node],
            clock.at_ns - shifts[clock.node],
            clock.drift_ppb,
            clock.error_ns,
            clock.aligned,
        )
        for clock in found.clocks
    )
    return Fit(found.reference, clocks, found.knots_ns, found.errors_ns, found.statement_used), counts


def _parameter(connection: duckdb.DuckDBPyConnection, name: str, columns: str, rows: Sequence[tuple[Any, ...]]) -> None:
    connection.execute(f"CREATE TEMP TABLE {name} ({columns})")
    if rows:
        marks = ", ".join(f"${i}" for i in range(1, len(rows[0]) + 1))
        connection.executemany(f"INSERT INTO {name} VALUES ({marks})", [list(row) for row in rows])


def _stated(config: RunConfig) -> int | None:
    """run.toml's clock_error_ns is a statement only where it is written there."""
    return config.network.clock_error_ns if "clock_error_ns" in config.network.model_fields_set else None


def _neighbours(nodes: Sequence[str]) -> list[tuple[str, str]]:
    near = len(nodes) if len(nodes) <= _ALL_PAIRS_UP_TO else _NEAR
    return [
        (nodes[i], nodes[j]) for i in range(len(nodes)) for j in range(i + 1, len(nodes)) if i < _HUBS or j - i <= near
    ]


def _connections(
    nodes: Sequence[str], reference: str, gaps: Sequence[tuple[str, str, int, int]]
) -> tuple[list[tuple[str, str, int]], dict[str, int]]:
    """Which pairs speak, from which certainty on, and a first shift of each node onto the reference's clock.

    Collectives that may not synchronise speak only where sure ones leave two nodes unconnected.
    """
    sure = [(a, b, gap) for a, b, say, gap in gaps if say == 2]
    component = _components(nodes, [(a, b) for a, b, _ in sure])
    used = [(a, b, 2) for a, b, _ in sure]
    doubtful = [(a, b, gap) for a, b, say, gap in gaps if say == 1 and component[a] != component[b]]
    used += [(a, b, 1) for a, b, _ in doubtful]
    links: dict[str, list[tuple[str, int]]] = defaultdict(list)
    for a, b, gap in (*sure, *doubtful):
        links[a].append((b, gap))
        links[b].append((a, -gap))
    shifts = {reference: 0}
    frontier = [reference]
    while frontier:
        following = []
        for node in frontier:
            for other, gap in links[node]:
                if other not in shifts:
                    shifts[other] = shifts[node] + gap
                    following.append(other)
        frontier = following
    return sorted(set(used)), {node: shifts.get(node, 0) for node in nodes}


def _components(nodes: Sequence[str], links: Sequence[tuple[str, str]]) -> dict[str, str]:
    root = {node: node for node in nodes}

    def find(node: str) -> str:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    for a, b in links:
        root[find(a)] = find(b)
    return {node: find(node) for node in nodes}


def _knots(connection: duckdb.DuckDBPyConnection) -> list[int]:
    """Instants along the run, first to last, on the shifted clocks."""
    row = connection.execute(
        """SELECT min(on_run_clock(g.start_ns, u.offset_ns, u.at_ns, u.drift_ppb) + s.shift_ns),
            max(on_run_clock(g.end_ns, u.offset_ns, u.at_ns, u.drift_ppb) + s.shift_ns)
        FROM (SELECT rank, min(start_ns) AS start_ns, max(end_ns) AS end_ns FROM gpu_ops
              WHERE end_ns >= start_ns GROUP BY rank) AS g
        JOIN (SELECT rank, min(node) AS node FROM ranks GROUP BY rank) AS r USING (rank)
        JOIN _clock_shifts AS s USING (node)
        JOIN _clock_undo AS u USING (node)"""
    ).fetchone()
    first, last = (0, 1) if row is None or row[0] is None else (int(row[0]), int(row[1]))
    last = max(last, first + 1)
    return sorted({first + (last - first) * k // (_KNOTS - 1) for k in range(_KNOTS)})


def _constraints(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], Constraints]:
    import numpy as np

    columns = connection.execute("SELECT * FROM _clock_bounds ORDER BY node, other_node, lower_at_ns").fetchnumpy()
    pairs = list(zip(columns["node"], columns["other_node"], strict=True))
    edges = [k for k in range(len(pairs)) if k == 0 or pairs[k] != pairs[k - 1]] + [len(pairs)]
    found = {}
    for start, end in pairwise(edges):
        part = slice(start, end)
        found[pairs[start]] = Constraints(
            *(
                np.asarray(columns[name][part], dtype=np.int64)
                for name in ("lower_at_ns", "lower_ns", "upper_at_ns", "upper_ns")
            )
        )
    return found


# -- what is told


def _cross_check(run_dir: RunDir, owners: Mapping[str, str]) -> list[dict[str, str]]:
    """Facts: what is left between two formats' captures of a node where both saw the same threads switched in."""
    files = [file for file in run_dir.files("thread_states") if file.stem in owners]
    if len(files) < 2:
        return []
    connection = _connect(run_dir)
    try:
        connection.execute(
            """CREATE TEMP TABLE _clock_slices AS
            SELECT c.capture_id, c.kind, c.host AS node, t.tid, t.cpu, t.start_ns
            FROM read_parquet($1, hive_partitioning = false, filename = true) AS t
            JOIN captures AS c ON c.capture_id = parse_filename(t.filename, true)
            WHERE t.state = 'running' AND t.cpu IS NOT NULL AND t.start_ns IS NOT NULL""",
            [[str(file) for file in files]],
        )
        connection.execute(sql("_clock_cross_check"))
        rows = connection.execute("SELECT * FROM _clock_cross_check ORDER BY node, kinds").fetchall()
    finally:
        connection.close()
    return [
        {
            "name": f"clock_residual_{node}_ns",
            "value": str(residual),
            "text": f"left between {kinds} on {node}: median over {slices} thread switches that both saw, "
            f"median distance {spread} ns",
        }
        for node, kinds, slices, residual, spread in rows
    ]


def _write_tables(
    run_dir: RunDir,
    found: Fit,
    shifts: Mapping[str, Shift],
    counts: Mapping[str, int],
    more_facts: Sequence[dict[str, str]],
) -> None:
    import pyarrow as pa

    offsets, pairs = [], []
    for clock in found.clocks:
        shift = shifts.get(clock.node, Shift(0, found.knots_ns[0], 0))
        status = "unaligned" if not clock.aligned else "reference" if clock.node == found.reference else "fitted"
        offsets.append(
            {
                "node": clock.node,
                "reference": found.reference if clock.aligned else None,
                "offset_ns": shift.offset_ns if clock.aligned else None,
                "error_ns": clock.error_ns if clock.aligned else None,
                "drift_ppb": float(shift.drift_ppb) if clock.aligned else None,
                "at_ns": shift.at_ns if clock.aligned else None,
                "n": counts.get(clock.node, 0),
                "status": status,
            }
        )
    names = [clock.node for clock in found.clocks]
    windows = len(found.knots_ns) - 1
    for i, one in enumerate(found.clocks):
        for j, two in enumerate(found.clocks):
            if i == j or not (one.aligned and two.aligned):
                continue
            for w in range(windows):
                pairs.append(
                    {
                        "node": names[i],
                        "other_node": names[j],
                        "start_ns": _BEGINNING if w == 0 else found.knots_ns[w],
                        "end_ns": _FOREVER if w == windows - 1 else found.knots_ns[w + 1],
                        "error_ns": int(found.errors_ns[w, i, j]),
                    }
                )
    facts = [*_facts(found), *more_facts]
    for table, rows in (("clock_offsets", offsets), ("clock_pairs", pairs), ("run_facts", facts)):
        schema = TABLES[table].arrow_schema()
        full = [{**dict.fromkeys(schema.names), **row} for row in rows]
        run_dir.write_batches(table, _FILE, pa.Table.from_pylist(full, schema=schema).to_batches())


def _facts(found: Fit) -> list[dict[str, str]]:
    aligned = [clock for clock in found.clocks if clock.aligned]
    unaligned = [clock.node for clock in found.clocks if not clock.aligned]
    index = [i for i, clock in enumerate(found.clocks) if clock.aligned]
    error = max((int(found.errors_ns[:, i, j].max()) for i in index for j in index), default=0)
    facts = [
        {"name": "clock_reference_node", "value": found.reference, "text": "node whose UTC is the run clock"},
        {
            "name": "clock_error_ns",
            "value": str(error),
            "text": f"largest error between the clocks of any two of {len(aligned)} aligned nodes",
        },
    ]
    if unaligned:
        facts.append(
            {
                "name": "clock_unaligned_nodes",
                "value": ", ".join(unaligned),
                "text": "nodes that share no collective with the reference: their ranks have no waits on other nodes",
            }
        )
    if found.statement_used:
        facts.append(
            {
                "name": "clock_statement",
                "value": "used",
                "text": "run.toml's clock_error_ns narrowed what collectives say of the clocks",
            }
        )
    return facts
