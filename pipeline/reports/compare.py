"""Two runs side by side, `mfuloss.compare/1`: what each category gained or lost, beyond the noise of the steps.

The change of a category is the difference of its means over steps; its noise interval is Welch's 95 %
interval of that difference, each step (mean over its ranks) being one sample. Points are points of each run's
own 100, so they compare shares; ms compare times.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import variance
from typing import Any

from markupsafe import Markup

from pipeline.lake.catalog import find_run
from pipeline.lake.layout import RunDir
from pipeline.model import categories as tree
from pipeline.model import library
from pipeline.model.errors import GateFailed, UsageError
from pipeline.reports import charts, html, markdown, palette, tables, words
from pipeline.reports import figures as f
from pipeline.reports.data import Report, Scope
from pipeline.reports.load import load as load_report
from pipeline.reports.load import opened
from pipeline.reports.svg import FAINT, drawing, line, rect, tag, text
from pipeline.reports.tables import Cell, Table

SCHEMA = "mfuloss.compare/1"
FORMATS = ("text", "json", "markdown", "html")
SAME_MODEL_TOLERANCE = 0.005
"""Relative difference of MFU·T up to which two runs count as one model: both are rounded ratios of integers."""

# Two-sided 95 % quantiles of Student's t by degrees of freedom; between them the smaller degree counts (wider interval).
_T95 = (
    (1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365), (8, 2.306), (9, 2.262), (10, 2.228),
    (12, 2.179), (15, 2.131), (20, 2.086), (30, 2.042), (40, 2.021), (60, 2.000), (120, 1.980), (1_000_000, 1.960),
)  # fmt: skip


@dataclass(frozen=True)
class Side:
    """One of the two runs. ideal_ns: MFU·T, ideal time of a step; None without FLOPs."""

    run: str
    mean_ns: float
    median_ns: int
    ranks: int
    steps: int
    sources: str
    mfu_points: float | None
    ideal_ns: float | None


@dataclass(frozen=True)
class Change:
    """A category in both runs: candidate minus base. noise_*: 95 % interval of change_ns; None with fewer than two steps.

    beyond_noise: the interval leaves out zero; None where there is no interval.
    status: both, appeared or gone.
    """

    category: str
    text: str
    base_ns: float | None
    candidate_ns: float | None
    change_ns: float
    noise_lo_ns: float | None
    noise_hi_ns: float | None
    base_points: float
    candidate_points: float
    change_points: float
    beyond_noise: bool | None
    status: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Difference:
    """A finding or source that only one of the runs has. where: base or candidate."""

    kind: str
    name: str
    where: str


@dataclass(frozen=True)
class Comparison:
    schema: str
    base: Side
    candidate: Side
    same_model: bool | None
    model_note: str
    step: Change
    changes: tuple[Change, ...]
    mfu_change_points: float | None
    differences: tuple[Difference, ...]

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @property
    def lost_points(self) -> float:
        """What the gate measures: MFU points lost; without MFU, the growth of the step time in % of the base's."""
        if self.mfu_change_points is not None:
            return -self.mfu_change_points
        return 100 * self.step.change_ns / self.base.mean_ns


def load(base: RunDir, candidate: RunDir) -> Comparison:
    """Compare two runs. Raises UsageError where one has no step to compare, windows alone included."""
    left, left_steps = _read(base)
    right, right_steps = _read(candidate)
    base_side, candidate_side = _side(left), _side(right)
    same, note = _model(base_side, candidate_side)
    names = sorted({*left_steps, *right_steps} - {"step"}, key=lambda name: (_place(name), name))
    changes = tuple(_change(name, left, right, left_steps, right_steps) for name in names)
    mfu = None
    if left.mfu_points is not None and right.mfu_points is not None:
        mfu = right.mfu_points - left.mfu_points
    return Comparison(
        schema=SCHEMA,
        base=base_side,
        candidate=candidate_side,
        same_model=same,
        model_note=note,
        step=_change("step", left, right, left_steps, right_steps),
        changes=changes,
        mfu_change_points=mfu,
        differences=tuple(_differences(left, right)),
    )


def render(lake: Path, base: str, candidate: str, format: str = "text", *, color: bool = False) -> str:
    """The comparison of two runs of the lake in a format of `FORMATS`."""
    if format not in FORMATS:
        raise UsageError(f"no format {format!r}", todo=f"choose one of {', '.join(FORMATS)}")
    return shown(load(find_run(lake, base), find_run(lake, candidate)), format, color=color)


def shown(c: Comparison, format: str, *, color: bool = False) -> str:
    if format == "json":
        return json.dumps(c.to_json(), ensure_ascii=False, indent=1, allow_nan=False) + "\n"
    if format == "markdown":
        return _markdown(c)
    if format == "html":
        return _html(c)
    return _text(c, color)


def gate(c: Comparison, points: float) -> None:
    """Raise GateFailed if the candidate lost more than `points` MFU points (step time, in %, where MFU is not known)."""
    if c.lost_points <= points:
        return
    what = "MFU points" if c.mfu_change_points is not None else "% of step time (MFU is not known)"
    noise = {True: "", False: ", within the noise of the steps", None: ", too few steps to tell noise"}[
        c.step.beyond_noise
    ]
    worst = max(c.changes, key=lambda change: change.change_ns, default=None)
    todo = None
    if worst is not None and worst.change_ns > 0:
        todo = f"largest growth: {worst.category}, {_signed(worst.change_ns)} per rank and step"
    raise GateFailed(
        f"lost {c.lost_points:.2f} {what}{noise}; the gate allows {points:g}",
        where=f"{c.base.run} → {c.candidate.run}",
        todo=todo,
    )


def _read(run_dir: RunDir) -> tuple[Report, dict[str, list[float]]]:
    report = load_report(run_dir, replay=False)
    if report.step_time is None:
        raise UsageError(f"run {report.run} has no step to compare", where=run_dir.path)
    if "window" in report.step_time.sources:
        raise UsageError(
            f"run {report.run} has windows, no steps: their times say nothing about each other",
            where=run_dir.path,
            todo="name the steps' ranges, [steps] pattern in run.toml, and attribute again",
        )
    with opened(run_dir, Scope(None, None)) as connection:
        for name in ("report_steps", "report_cells", "compare_steps"):
            connection.execute(library.sql(name))
        samples: dict[str, list[float]] = {}
        for category, mean_ns in connection.execute(
            "SELECT category, mean_ns FROM compare_steps ORDER BY category, step"
        ).fetchall():
            samples.setdefault(category, []).append(float(mean_ns))
    return report, samples


def _side(r: Report) -> Side:
    t = r.step_time
    assert t is not None
    ideal = None if r.mfu_points is None else r.mfu_points / 100 * t.mean_ns
    return Side(r.run, t.mean_ns, t.median_ns, t.ranks, t.steps, t.sources, r.mfu_points, ideal)


def _model(base: Side, candidate: Side) -> tuple[bool | None, str]:
    """Two runs of one model on as many GPUs of one kind have equal MFU·T."""
    if base.ideal_ns is None or candidate.ideal_ns is None:
        return (
            None,
            "whether both ran the same model is not known: at least one has no MFU, so times are compared, not MFU",
        )
    ratio = candidate.ideal_ns / base.ideal_ns
    if abs(ratio - 1) <= SAME_MODEL_TOLERANCE:
        return True, f"the same work: MFU·T is {f.time(base.ideal_ns)} in both"
    return False, (
        f"not the same work per GPU and step: MFU·T is {f.time(base.ideal_ns)} in {base.run} and {f.time(candidate.ideal_ns)} in "
        f"{candidate.run} (× {ratio:.3f}); times compare models, not runs"
    )


def _change(
    name: str,
    left: Report,
    right: Report,
    left_steps: Mapping[str, list[float]],
    right_steps: Mapping[str, list[float]],
) -> Change:
    base, candidate = _mean_of(name, left), _mean_of(name, right)
    half = welch_half_width(left_steps.get(name) or _zeros(left_steps), right_steps.get(name) or _zeros(right_steps))
    change = (candidate or 0.0) - (base or 0.0)
    lo, hi = (None, None) if half is None else (change - half, change + half)
    base_points, candidate_points = (
        100 * (ns or 0.0) / r.step_time.mean_ns for ns, r in ((base, left), (candidate, right)) if r.step_time
    )
    status = "both" if base and candidate else "appeared" if candidate else "gone"
    known = tree.BY_NAME.get(name)
    return Change(
        category=name,
        text=known.text if known else "the whole step",
        base_ns=base,
        candidate_ns=candidate,
        change_ns=change,
        noise_lo_ns=lo,
        noise_hi_ns=hi,
        base_points=base_points,
        candidate_points=candidate_points,
        change_points=candidate_points - base_points,
        beyond_noise=None if half is None else abs(change) > half,
        status=status,
        evidence=tuple(dict.fromkeys(level for r in (left, right) for level in _levels(name, r))),
    )


def _zeros(samples: Mapping[str, list[float]]) -> list[float]:
    return [0.0] * len(samples["step"])


def _mean_of(name: str, r: Report) -> float | None:
    if name == "step":
        return r.step_time.mean_ns if r.step_time else None
    return next((row.mean_ns for row in r.categories if row.category == name and row.attributed_ns), None)


def _levels(name: str, r: Report) -> Iterable[str]:
    if name == "step":
        return ["measured_nsys"] if r.step_time and r.step_time.sources == "nvtx" else ["inferred"]
    return [level.evidence for row in r.categories if row.category == name for level in row.levels]


def welch_half_width(base: list[float], candidate: list[float]) -> float | None:
    """Half of the 95 % interval of mean(candidate) - mean(base) for unequal variances (Welch 1947); None with fewer
    than two samples on a side."""
    if len(base) < 2 or len(candidate) < 2:
        return None
    a, b = variance(base) / len(base), variance(candidate) / len(candidate)
    if a + b == 0:
        return 0.0
    degrees = (a + b) ** 2 / (a**2 / (len(base) - 1) + b**2 / (len(candidate) - 1))
    return _t95(degrees) * math.sqrt(a + b)


def _t95(degrees: float) -> float:
    return next((t for n, t in reversed(_T95) if n <= degrees), _T95[0][1])


def _differences(left: Report, right: Report) -> Iterable[Difference]:
    pairs: tuple[tuple[str, set[str], set[str]], ...] = (
        ("finding", {x.code for x in left.findings}, {x.code for x in right.findings}),
        ("missing source", {x.source for x in left.missing}, {x.source for x in right.missing}),
        ("unusable input", _unusable(left), _unusable(right)),
        ("rank", {str(x.rank) for x in left.ranks}, {str(x.rank) for x in right.ranks}),
    )
    for kind, base, candidate in pairs:
        for name in sorted(base - candidate):
            yield Difference(kind, name, "base")
        for name in sorted(candidate - base):
            yield Difference(kind, name, "candidate")


def _unusable(r: Report) -> set[str]:
    return {capture.name for capture in r.captures if capture.status == "unusable"}


def _place(category: str) -> int:
    names = [c.name for c in tree.CATEGORIES]
    return names.index(category) if category in names else len(names)


def _signed(ns: float) -> str:
    return f.time(ns) if ns < 0 else f"+{f.time(ns)}"


def _signed_ms(ns: float | None) -> str:
    return f.ABSENT if ns is None else f"{ns / 1e6:+,.3f}"


def headline(c: Comparison) -> list[str]:
    """What changed, in sentences."""
    noise = (
        ""
        if c.step.noise_lo_ns is None
        else f" [95 %: {_signed(c.step.noise_lo_ns)} to {_signed(c.step.noise_hi_ns or 0.0)}]"
    )
    verdict = {True: "", False: ", within the noise of the steps", None: ", and too few steps tell how much is noise"}[
        c.step.beyond_noise
    ]
    ends = f"{f.time(c.base.mean_ns)} → {f.time(c.candidate.mean_ns)}"
    change = f"{_signed(c.step.change_ns)} ({100 * c.step.change_ns / c.base.mean_ns:+.1f} %)"
    lines = [f"mean step time: {ends}, {change}{noise}{verdict}"]
    if c.base.mfu_points is not None and c.candidate.mfu_points is not None:
        lines.append(
            f"MFU: {c.base.mfu_points:.2f} % → {c.candidate.mfu_points:.2f} % ({c.candidate.mfu_points - c.base.mfu_points:+.2f} points)"
        )
    lines.append(c.model_note)
    lines += [
        f"{side.run}: {words.plural(side.ranks, 'rank')}, {words.plural(side.steps, 'step')} ({side.sources})"
        for side in (c.base, c.candidate)
    ]
    return lines


def difference_lines(c: Comparison) -> list[str]:
    return [f"{'gone' if d.where == 'base' else 'new'}: {d.kind} {d.name}" for d in c.differences]


def table(c: Comparison) -> Table:
    rows = []
    for x in (c.step, *c.changes):
        noise = f.ABSENT if x.noise_lo_ns is None else f"{_signed_ms(x.noise_lo_ns)} to {_signed_ms(x.noise_hi_ns)}"
        verdict = _verdict(x)
        rows.append(
            (
                Cell(x.category), tables.ms(x.base_ns), tables.ms(x.candidate_ns), Cell(_signed_ms(x.change_ns), x.change_ns), Cell(noise),
                Cell(f"{x.change_points:+.2f}", x.change_points), Cell(verdict), Cell(tables.evidence(x.evidence)),
            )
        )  # fmt: skip
    columns = (("category", False), ("base, ms", True), ("candidate, ms", True), ("change, ms", True), ("95 % noise, ms", True),
               ("points", True), ("verdict", False), ("evidence", False))  # fmt: skip
    about = (
        "Mean per rank and step over the counted steps; change is candidate minus base, its interval from the spread of the steps. "
        "Points: change of the share of each run's own step time."
    )
    return Table("changes", about, tuple(tables.Column(*column) for column in columns), tuple(rows))


def _verdict(x: Change) -> str:
    if x.status != "both":
        return x.status
    if x.change_ns == 0:
        return "unchanged"
    return {True: "changed", False: "within noise", None: "unknown"}[x.beyond_noise]


def _markdown(c: Comparison) -> str:
    out = [f"# mfuloss compare: {markdown.plain(c.base.run)} → {markdown.plain(c.candidate.run)}", ""]
    out += [f"- {markdown.plain(text)}" for text in headline(c)] + [""]
    out += ["## Changes", "", markdown.plain(table(c).about), "", *markdown.table(table(c))]
    if c.differences:
        out += ["## What appeared and what went", "", *(f"- {markdown.plain(text)}" for text in difference_lines(c))]
    return "\n".join(out).rstrip() + "\n"


def _text(c: Comparison, color: bool) -> str:
    from pipeline.reports.text import Screen

    screen = Screen(color=color)
    screen.line(f"mfuloss compare  {c.base.run} → {c.candidate.run}", "bold")
    for sentence in headline(c):
        screen.line(sentence, hang=2)
    content = table(c)
    screen.title("Changes, mean per rank and step")
    screen.table(
        [(col.heading, "r" if col.right else "l") for col in content.columns[:-1]],
        [[cell.text for cell in row[:-1]] for row in content.rows],
    )
    if c.differences:
        screen.title("What appeared and what went")
        for sentence in difference_lines(c):
            screen.bullet(sentence)
    return screen.text()


def _html(c: Comparison) -> str:
    template = html.environment().get_template("compare.html")
    return template.render(
        c=c, headline=headline(c), differences=difference_lines(c), table=table(c), chart=html.both(chart, c), patterns=charts.patterns(),
        signed=_signed,
    )  # fmt: skip


def chart(c: Comparison, width: int = charts.WIDE) -> Markup:
    """Change of each category as a bar from zero, its noise interval as a whisker."""
    narrow = width < 600
    rows = [x for x in c.changes if x.base_ns or x.candidate_ns]
    left, right = (0.0, 0.0) if narrow else (190.0, 110.0)
    row_h, top = (43, 26) if narrow else (28, 26)
    ends = [v for x in rows for v in (x.change_ns, x.noise_lo_ns, x.noise_hi_ns) if v is not None]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    span = (high - low) or 1.0
    plot = width - left - right - 8

    def x_of(ns: float) -> float:
        return left + 4 + plot * (ns - low) / span

    height = top + row_h * len(rows) + 8
    parts: list[Markup] = []
    for tick in charts.ticks_between(low, high, 4 if narrow else 6):
        parts += [
            line(x_of(tick), top - 6, x_of(tick), height),
            text(x_of(tick), top - 11, "0" if tick == 0 else _signed(tick), kind=FAINT, anchor="middle"),
        ]
    for i, change in enumerate(rows):
        y = top + i * row_h
        bar_y = y + (20 if narrow else 6)
        label = words.label_of(change.category)
        faint = change.beyond_noise is False and change.change_ns != 0
        a, b = sorted((x_of(0), x_of(change.change_ns)))
        tip = f"{label}: {_signed(change.change_ns)}" + (", within noise" if faint else "")
        fill = palette.color(change.category)
        parts.append(
            rect(
                a,
                bar_y,
                max(b - a, 1.5),
                15,
                tag("title", tip),
                fill=fill,
                fill_opacity="0.35" if faint else None,
                rx="1.5",
            )
        )
        if change.noise_lo_ns is not None and change.noise_hi_ns is not None:
            parts.append(
                tag(
                    "line",
                    x1=x_of(change.noise_lo_ns),
                    x2=x_of(change.noise_hi_ns),
                    y1=float(bar_y + 7.5),
                    y2=float(bar_y + 7.5),
                    class_="whisker",
                )
            )
        shown_text = (
            "unchanged" if change.change_ns == 0 else f"{_signed(change.change_ns)}{' (noise)' if faint else ''}"
        )
        parts.append(text(0, y + 14, label) if narrow else text(left - 10, bar_y + 12, label, anchor="end"))
        parts.append(text(width - 2, y + 14 if narrow else bar_y + 12, shown_text, kind=FAINT, anchor="end"))
    parts.append(tag("line", x1=x_of(0), x2=x_of(0), y1=float(top - 6), y2=float(height), class_="zero"))
    return drawing(width, height, parts, title=f"change of each category, {c.base.run} to {c.candidate.run}")
