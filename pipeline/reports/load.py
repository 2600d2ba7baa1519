"""Reads a run's lake tables into the structure of `data`. Aggregation is SQL (queries/report/)."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from pipeline.attribution.database import add_categories, ensure_all
from pipeline.attribution.whatif import whatif
from pipeline.lake.layout import RunDir, run_of
from pipeline.model import categories as tree
from pipeline.model import library
from pipeline.model import run as run_toml
from pipeline.model.categories import Headline as Class
from pipeline.model.errors import MfulossError, UsageError
from pipeline.model.run import RunConfig
from pipeline.model.schema import DERIVED_TABLES
from pipeline.reports import story
from pipeline.reports.data import (
    CLASS_LABELS,
    SCHEMA,
    Bar,
    CaptureRow,
    CategoryRow,
    Cells,
    ClassRow,
    ClockRow,
    Culprit,
    Fact,
    Finding,
    Fit,
    Level,
    Loss,
    MessageRow,
    Missing,
    RankRow,
    Report,
    Scope,
    Share,
    SizeBin,
    StepRow,
    StepTime,
    Timeline,
    TimelineItem,
    WaitRow,
    WhatIf,
)
from pipeline.reports.figures import largest_remainder

if TYPE_CHECKING:
    import duckdb

_QUERIES = (
    "report_steps",
    "report_totals",
    "report_categories",
    "report_cells",
    "report_ranks",
    "report_step_rows",
    "report_evidence",
    "report_own_messages",
    "report_message_values",
    "report_messages",
    "report_sizes",
    "report_waits",
    "report_culprits",
    "report_sources",
    "report_findings",
    "report_losses",
    "report_worst",
    "report_timeline",
)
"""In the order of their inputs."""
_SOURCES = {
    "inferred": "steps are inferred from the period of kernels, not read",
    "window": "no step is known, only windows of time",
}
"""What the lack of step ranges costs, by where steps come from instead."""
MAX_CELLS = 64 * 200
"""Cells that a heat map shows; beyond that steps are grouped."""
MAX_ROWS = 200
"""Waits and culprits kept, the largest first."""


def config_of(run_dir: RunDir) -> RunConfig:
    """The run's description, from its manifest; all defaults where it has none."""
    raw = run_dir.manifest.get("config") or {}
    return run_toml.parse(dict(raw), where=run_dir.path / "manifest.json")


@contextmanager
def opened(run_dir: RunDir, scope: Scope) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with every lake table (an empty one where the run lacks it), `categories` and `report_scope`."""
    connection = run_dir.connect(threads=2, memory_limit="2GB")
    try:
        ensure_all(connection, DERIVED_TABLES)
        add_categories(connection)
        connection.execute(
            "CREATE TEMP TABLE report_scope AS SELECT ?::BIGINT AS rank, ?::BIGINT AS step", list(_pair(scope))
        )
        yield connection
    finally:
        connection.close()


def load(run_dir: RunDir, rank: int | None = None, step: int | None = None, *, replay: bool = True) -> Report:
    """The report of a run, or of one rank or one step of it. replay: with what-ifs, which take a replay of the messages.

    Raises UsageError where the run has no such rank or step, LakeError for a damaged run.
    """
    scope = Scope(rank, step)
    config = config_of(run_dir)
    with opened(run_dir, scope) as connection:
        check(connection, scope, run_dir)
        for name in _QUERIES:
            connection.execute(library.sql(name))
        report = _Loader(connection, run_dir, config, scope).report(replay)
    return dataclasses.replace(report, happened=story.happened(report))


def _pair(scope: Scope) -> tuple[int | None, int | None]:
    return scope.rank, scope.step


def check(connection: duckdb.DuckDBPyConnection, scope: Scope, run_dir: RunDir) -> None:
    """Raise UsageError where the run has no such rank or step."""
    for name, value in (("rank", scope.rank), ("step", scope.step)):
        if value is None:
            continue
        have = connection.execute(
            f"SELECT min({name}), max({name}), count(*) FILTER ({name} = ?) FROM steps", [value]
        ).fetchone()
        if have is None or have[0] is None:
            raise UsageError(
                f"run {run_of(run_dir.path)} has no steps, so no {name} {value}", todo=f"leave out --{name}"
            )
        if have[2] == 0:
            raise UsageError(
                f"run {run_of(run_dir.path)} has no {name} {value}",
                todo=f"it has {name}s from {have[0]} to {have[1]}",
            )


class _Loader:
    """Turns the aggregated tables of one connection into a Report."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, run_dir: RunDir, config: RunConfig, scope: Scope) -> None:
        self.connection = connection
        self.run_dir = run_dir
        self.config = config
        self.scope = scope
        self.totals = self._first("FROM report_totals")
        self.sources = {row["source"]: int(row["n"]) for row in self._rows("FROM report_sources")}
        self.wall_ns = int(self.totals["wall_ns"]) if self.totals else 0
        self.rank_steps = int(self.totals["rank_steps"]) if self.totals else 0
        self.communicates = self._first(_COMMUNICATES) is not None
        self.coarse_ns = 0
        self.absent: dict[str, str] = {}

    def _rows(self, query: str) -> list[dict[str, Any]]:
        cursor = self.connection.execute(query)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _first(self, query: str) -> dict[str, Any] | None:
        rows = self._rows(query)
        return rows[0] if rows else None

    def _mean(self, ns: float | None) -> float | None:
        return None if ns is None or not self.rank_steps else int(ns) / self.rank_steps

    def report(self, replay: bool) -> Report:
        rows = self.category_rows()
        bars, mfu, mfu_evidence = self.bars(rows)
        rows = _shown_as_bars(rows, bars)
        self.coarse_ns = sum(row.attributed_ns for row in rows if row.category == "comm_unattributed")
        mfu_absent = None if mfu is not None else self.mfu_absent()
        timeline = self.timeline()
        messages = _all(MessageRow, self._rows("FROM report_messages"))
        findings = _all(Finding, self._rows("FROM report_findings"))
        waits = _all(WaitRow, self._rows(f"FROM report_waits LIMIT {MAX_ROWS}"))
        culprits = _all(Culprit, self._rows(f"FROM report_culprits LIMIT {MAX_ROWS}"))
        classes = self.classes(rows)
        step_time = self.step_time()
        whatifs = self.whatifs() if replay else ()
        for section, present, reason in (
            ("steps", step_time is not None, "no step, not even a window, could be cut in this run"),
            ("messages", bool(messages), self.no_messages()),
            ("waits", bool(waits), self.no_waits()),
            ("findings", bool(findings), "no detector found anything"),
            ("timeline", timeline is not None, "no attributed step to draw"),
        ):
            if not present:
                self.absent[section] = reason
        return Report(
            schema=SCHEMA,
            run=run_of(self.run_dir.path),
            note=self.config.run.note,
            scope=self.scope,
            step_time=step_time,
            mfu_points=mfu,
            mfu_evidence=mfu_evidence,
            mfu_absent=mfu_absent,
            classes=classes,
            bars=bars,
            categories=rows,
            ranks=tuple(
                RankRow(**{**r, "categories": dict(r["categories"] or {})}) for r in self._rows("FROM report_ranks")
            ),
            steps=tuple(
                StepRow(**{**r, "categories": dict(r["categories"] or {})}) for r in self._rows("FROM report_step_rows")
            ),
            cells=self.cells(),
            messages=messages,
            fits=self.fits(messages),
            sizes=_all(SizeBin, self._rows("FROM report_sizes")),
            waits=waits,
            culprits=culprits,
            findings=findings,
            happened=(),
            whatifs=whatifs,
            captures=_all(CaptureRow, self._rows("FROM captures ORDER BY name, capture_id")),
            missing=self.missing(rows),
            losses=_all(Loss, self._rows("FROM report_losses")),
            clocks=_all(ClockRow, self._rows("FROM clock_offsets ORDER BY node")),
            evidence=self.evidence(),
            facts=_all(Fact, self._rows("FROM run_facts ORDER BY name")),
            timeline=timeline,
            absent=self.absent,
        )

    def step_time(self) -> StepTime | None:
        if self.totals is None:
            return None
        t = self.totals
        if self.scope.step is not None:
            basis = "the step asked for"
        elif t["all_steps"] - t["partial_steps"] - t["outlier_steps"] > 0:
            basis = "complete steps without outliers"
        else:
            basis = "all steps, as none of them is both complete and no outlier"
        return StepTime(**{**t, "wall_ns": self.wall_ns, "kind": self.config.steps.kind, "basis": basis})

    def category_rows(self) -> tuple[CategoryRow, ...]:
        by_name: dict[str, list[dict[str, Any]]] = {}
        for row in self._rows("FROM report_categories"):
            by_name.setdefault(row["category"], []).append(row)
        names = sorted(by_name, key=lambda name: (_place(name), name))
        sums = {name: sum(int(r["attributed_ns"]) for r in by_name[name]) for name in names}
        names = [name for name in names if sums[name] or any(r["inclusive_ns"] for r in by_name[name])]
        found = []
        for name in names:
            rows = by_name[name]
            known = tree.BY_NAME.get(name)
            found.append(
                CategoryRow(
                    category=name,
                    text=known.text if known else "",
                    group=known.group if known else "other",
                    headline=known.headline.value if known and known.headline else None,
                    attributed_ns=sums[name],
                    mean_ns=self._mean(sums[name]) or 0.0,
                    mean_lo_ns=self._mean(sum(int(r["lo_ns"]) for r in rows)) or 0.0,
                    mean_hi_ns=self._mean(sum(int(r["hi_ns"]) for r in rows)) or 0.0,
                    exclusive_ns=_sum(rows, "exclusive_ns"),
                    inclusive_ns=_sum(rows, "inclusive_ns"),
                    hidden_ns=_sum(rows, "hidden_ns"),
                    share=sums[name] / self.wall_ns if self.wall_ns else 0.0,
                    shown="",
                    rank_steps=max(int(r["rank_steps"]) for r in rows),
                    ranks=max(int(r["ranks"]) for r in rows),
                    levels=tuple(
                        Level(r["evidence"], int(r["attributed_ns"]), int(r["lo_ns"]), int(r["hi_ns"])) for r in rows
                    ),
                )
            )
        return tuple(found)

    def bars(self, rows: tuple[CategoryRow, ...]) -> tuple[tuple[Bar, ...], float | None, str | None]:
        """The waterfall: `mfu` and `compute_loss` in place of compute where `mfu` has them, then the losses."""
        if not self.wall_ns:
            return (), None, None
        parts: list[tuple[str, str, str, Fraction, tuple[str, ...]]] = []
        useful = self.useful()
        for row in rows:
            levels = tuple(level.evidence for level in row.levels if level.attributed_ns)
            share = Fraction(100 * row.attributed_ns, self.wall_ns)
            if row.category == "compute" and useful is not None:
                points, evidence = useful
                parts.append(("mfu", _MFU_TEXT, "mfu", points, (evidence,)))
                parts.append(("compute_loss", _COMPUTE_LOSS_TEXT, "compute", share - points, (evidence,)))
            elif row.attributed_ns:
                parts.append((row.category, row.text, row.group, share, levels))
        shown = largest_remainder([part[3] for part in parts])
        bars = tuple(
            Bar(name, text, group, float(points), figure, self._of(points), evidence)
            for (name, text, group, points, evidence), figure in zip(parts, shown, strict=True)
        )
        return (bars, None, None) if useful is None else (bars, float(useful[0]), useful[1])

    def _of(self, points: Fraction) -> float:
        return float(points * self.wall_ns / 100 / self.rank_steps)

    def useful(self) -> tuple[Fraction, str] | None:
        """MFU points of this scope, exact, and their evidence; None where the table `mfu` has none."""
        scope = "run" if self.scope == Scope(None, None) else "rank" if self.scope.step is None else "step"
        row = self.connection.execute(
            "SELECT numerator, denominator, evidence FROM mfu WHERE category = 'mfu' AND scope = $1 "
            "AND rank IS NOT DISTINCT FROM $2 AND step IS NOT DISTINCT FROM $3",
            [scope, *_pair(self.scope)],
        ).fetchone()
        return None if row is None else (Fraction(int(row[0]), int(row[1])), str(row[2]))

    def mfu_absent(self) -> str:
        if self.config.steps.kind == "decode":
            return "decode has no MFU; the bars are shares of the time per output token"
        fact = self._first("FROM run_facts WHERE name = 'mfu_absent'")
        if fact:
            return str(fact["text"] or fact["value"])
        if self._first("FROM mfu WHERE scope = 'run' AND category = 'mfu' LIMIT 1"):
            return "these steps are partial or outliers: whether they did a step's FLOPs is not known"
        model = self.config.model
        if model.flops_per_step is None and model.params_active is None:
            return "the model's FLOPs are not known: give [model] flops_per_step or params_active in run.toml"
        return "no dense peak is known for this GPU and dtype: give [hardware] peak_tflops in run.toml"

    def classes(self, rows: tuple[CategoryRow, ...]) -> tuple[ClassRow, ...]:
        by_name = {row.category: row for row in rows}
        found = []
        for key in Class:
            names = [c.name for c in tree.CATEGORIES if c.headline is key]
            have = [by_name[name] for name in names if name in by_name and by_name[name].attributed_ns]
            label = CLASS_LABELS[key]
            if key is Class.CPU_DOORBELL and any(row.category == "ctl_post" for row in have):
                label = "CPU doorbell (WQE + doorbell)"
            total = sum(row.attributed_ns for row in have)
            absent = None
            if not have:
                absent = self._class_absent(key)
            beside = by_name.get("net_excess") if key is Class.RDMA_TRANSFER else None
            known = absent is None and self.wall_ns > 0
            found.append(
                ClassRow(
                    key=key.value,
                    label=label,
                    mean_ns=self._mean(total) if known else None,
                    points=100 * total / self.wall_ns if known else None,
                    shown=_add(row.shown for row in have) if known else None,
                    evidence=tuple(dict.fromkeys(lv.evidence for row in have for lv in row.levels if lv.attributed_ns)),
                    categories=tuple(row.category for row in have),
                    absent=absent,
                    beside="net_excess" if beside is not None and beside.attributed_ns else None,
                    beside_mean_ns=beside.mean_ns if beside is not None and beside.attributed_ns else None,
                )
            )
        return tuple(found)

    def _class_absent(self, key: Class) -> str | None:
        """Why a class has no figure; None where the source was there and it is a true zero."""
        if self.totals is None:
            return "there is no step to charge it to"
        if not self.sources["rdma_posts"] and not self.communicates:
            return "the run has no communication, neither kernels nor posts"
        if not self.sources["rdma_posts"] and self.coarse_ns == 0:
            return (
                "all exposed communication is between the GPUs of a node"
                if self._first("FROM breakdown WHERE category = 'nvlink_transfer' LIMIT 1") is not None
                else "no communication is exposed"
            )
        if not self.sources["rdma_posts"]:
            return "no capture of RDMA posts (eBPF): what there is of it is in comm_unattributed"
        identified = self._first("FROM fits WHERE beta_source IS NOT NULL LIMIT 1")
        if key is Class.RDMA_TRANSFER and identified is None:
            return "β is not identified by these messages and not given: the flight is in comm_unattributed"
        return None

    def cells(self) -> Cells:
        pairs = self._rows("SELECT rank, step, wall_ns FROM report_steps ORDER BY rank, step")
        ranks = sorted({int(r["rank"]) for r in pairs})
        steps = sorted({int(r["step"]) for r in pairs})
        group = max(1, math.ceil(len(ranks) * len(steps) / MAX_CELLS))
        columns = steps[::group]
        row_of = {rank: i for i, rank in enumerate(ranks)}
        column_of = {step: i // group for i, step in enumerate(steps)}

        def matrix() -> list[list[int | None]]:
            return [[None] * len(columns) for _ in ranks]

        def put(target: list[list[int | None]], row: dict[str, Any], value: int) -> None:
            line, column = target[row_of[int(row["rank"])]], column_of[int(row["step"])]
            line[column] = max(value, line[column] or 0)

        wall = matrix()
        for row in pairs:
            put(wall, row, int(row["wall_ns"]))
        matrices: dict[str, list[list[int | None]]] = {}
        for row in self._rows("FROM report_cells"):
            if row["category"] not in matrices:
                matrices[row["category"]] = [[None if v is None else 0 for v in line] for line in wall]
            put(matrices[row["category"]], row, int(row["attributed_ns"]))
        return Cells(
            ranks=tuple(ranks),
            steps=tuple(columns),
            steps_per_column=group,
            wall_ns=_frozen(wall),
            categories={name: _frozen(matrices[name]) for name in sorted(matrices, key=lambda n: (_place(n), n))},
        )

    def fits(self, messages: tuple[MessageRow, ...]) -> tuple[Fit, ...]:
        found = _all(Fit, self._rows("FROM fits ORDER BY node NULLS FIRST, nic, peer_class, op, initiator"))
        posts = {(m.node, m.nic, m.opcode_class): m.post_p50_ns for m in messages}
        fetch_ns = self.config.network.fetch_ns or 0

        def apart(fit: Fit) -> Fit:
            post_ns = posts.get((fit.node, fit.nic, fit.op))
            if fit.alpha_ns is None or fit.rtt0_ns is None or post_ns is None:
                return dataclasses.replace(fit, post_ns=post_ns)
            return dataclasses.replace(
                fit, post_ns=post_ns, alpha_rest_ns=fit.alpha_ns - post_ns - fetch_ns - fit.rtt0_ns
            )

        return tuple(apart(fit) for fit in found)

    def evidence(self) -> tuple[Share, ...]:
        rows = self._rows("FROM report_evidence")
        shares = [Fraction(100 * int(r["attributed_ns"]), self.wall_ns) for r in rows]
        return tuple(
            Share(r["evidence"], self._mean(r["attributed_ns"]) or 0.0, float(share) / 100, shown)
            for r, share, shown in zip(rows, shares, largest_remainder(shares), strict=True)
        )

    def missing(self, rows: tuple[CategoryRow, ...]) -> tuple[Missing, ...]:
        """Sources that the run lacks; the time that stays in the parent is what that costs."""
        mean = {row.category: row.mean_ns for row in rows}
        coarse = mean.get("comm_unattributed")
        have = self.sources
        found = []
        if not have["gpu_ops"]:
            found.append(Missing("gpu_ops", "no GPU work was recorded: nothing can be said of compute or idle", None))
        network = have["rdma_posts"] > 0 or bool(coarse)
        if not network:
            pass  # Sources about a network that is not there are not missed.
        elif not have["rdma_posts"]:
            cost = "exposed communication can't be divided into doorbell, control plane, transfer and latency"
            found.append(Missing("rdma_posts", cost, coarse))
        elif not have["thread_states"]:
            cost = "a proxy thread that waits for a core can't be told from one that runs: ctl_schedule is in ctl_loop"
            found.append(Missing("thread_states", cost, mean.get("ctl_loop")))
        if network and not have["comm_phases"]:
            cost = "the GPU's notification of the proxy and the receiver's credit are not seen (NCCL profiler)"
            found.append(Missing("comm_phases", cost, coarse))
        if have["gpu_ops"] and not have["nvtx"]:
            source = self.totals["sources"] if self.totals else None
            found.append(
                Missing(
                    "nvtx", f"no step ranges: {_SOURCES.get(source or '', 'what steps there are is not known')}", None
                )
            )
        if have["gpu_ops"] and not have["cuda_api"]:
            cost = "the launches are not known: idle time can't be charged to the host"
            found.append(Missing("cuda_api", cost, mean.get("idle_other")))
        if have["gpu_ops"] and not have["os_calls"] and not have["thread_states"]:
            cost = "what a blocked thread was blocked in is not known: host_other is in host_launch"
            found.append(Missing("os_calls", cost, mean.get("host_launch")))
        if have["rdma_posts"] and not have["counters"]:
            cost = "the messages can't be checked against the port counters: unseen traffic would not be noticed"
            found.append(Missing("counters", cost, None))
        return tuple(found)

    def no_messages(self) -> str:
        if self.sources["rdma_posts"]:
            return "no RDMA post of these ranks and steps was seen"
        if not self.communicates:
            return "the run has no communication, neither kernels nor posts"
        return "no capture of RDMA posts and completions (eBPF)"

    def no_waits(self) -> str:
        ranks = self._first("SELECT count(DISTINCT rank) AS n FROM steps")
        if ranks is None or int(ranks["n"]) < 2:
            return "one rank: there is no peer to wait for in this run"
        return "no operation with known participants had a rank that came late"

    def timeline(self) -> Timeline | None:
        worst = self._first("FROM report_worst")
        if worst is None:
            return None
        items = _all(TimelineItem, self._rows("FROM report_timeline"))
        return Timeline(**{**worst, "exposed_ns": int(worst["exposed_ns"])}, items=items)

    def whatifs(self) -> tuple[WhatIf, ...]:
        if self.scope != Scope(None, None):
            self.absent["whatifs"] = "what-if replays are of a whole run: leave out the rank and the step"
            return ()
        try:
            found = _all(WhatIf, whatif(self.run_dir, self.config))  # the best first
        except MfulossError as error:
            self.absent["whatifs"] = error.line()
            return ()
        if not found:
            self.absent["whatifs"] = "no change applies to this run"
        return found


_COMMUNICATES = "SELECT 1 FROM gpu_ops WHERE op_class = 'comm' UNION ALL SELECT 1 FROM rdma_posts UNION ALL SELECT 1 FROM comm_ops LIMIT 1"
_MFU_TEXT = "model FLOPs at the GPU's dense peak: the useful part"
_COMPUTE_LOSS_TEXT = "compute beyond that: kernels below the peak"


def _add(shown: Iterable[str]) -> str:
    """Sum of shown figures, so that a group reads as the sum of its parts."""
    return f"{sum((Decimal(text) for text in shown), Decimal(0)):.2f}"


def _shown_as_bars(rows: tuple[CategoryRow, ...], bars: tuple[Bar, ...]) -> tuple[CategoryRow, ...]:
    """Categories with the figures that their bars show: compute is the sum of its two bars."""
    shown = {bar.category: bar.shown for bar in bars}
    found = []
    for row in rows:
        names = ("mfu", "compute_loss") if row.category == "compute" and "mfu" in shown else (row.category,)
        found.append(dataclasses.replace(row, shown=_add(shown[name] for name in names if name in shown)))
    return tuple(found)


def _place(category: str) -> int:
    names = [c.name for c in tree.CATEGORIES]
    return names.index(category) if category in names else len(names)


def _sum(rows: list[dict[str, Any]], name: str) -> int | None:
    values = [int(row[name]) for row in rows if row[name] is not None]
    return sum(values) if values else None


def _frozen(matrix: list[list[int | None]]) -> tuple[tuple[int | None, ...], ...]:
    return tuple(tuple(line) for line in matrix)


def _all(kind: type, rows: list[dict[str, Any]]) -> tuple[Any, ...]:
    """Rows as dataclasses; columns that the class does not name are left out."""
    names = {field.name for field in dataclasses.fields(kind)}
    return tuple(kind(**{name: plain(row[name]) for name in row if name in names}) for row in rows)


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(value: Any) -> Any:
    """Text from traces without control and direction characters; NaN as None."""
    if isinstance(value, str):
        return _CONTROL.sub("\ufffd", value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
