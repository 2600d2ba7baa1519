"""Nights of jobs as a page over time, as sentences and as OpenMetrics text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from pipeline.model import categories as tree
from pipeline.reports import figures as f
from pipeline.reports import history, palette, words
from pipeline.reports.html import both, environment
from pipeline.reports.svg import FAINT, drawing, line, tag, text
from pipeline.reports.tables import Cell, Column, Table

CLASSES = {
    "cpu_doorbell": ("CPU doorbell", "ctl_post"),
    "control_plane_alpha": ("control-plane α", "ctl_loop"),
    "rdma_transfer": ("RDMA transfer", "rdma_transfer"),
    "blocking_rtt": ("blocking RTT", "blocking_rtt"),
}
"""The headline classes: label, and the category whose colour they have."""
_SMALL_POINTS = 0.2
"""A class that never reaches this share has no line on the page; nightly.json has it."""


def label(name: str) -> str:
    """A class's name for people."""
    return CLASSES[name][0] if name in CLASSES else words.label_of(name)


def _color(name: str) -> str:
    return palette.color(CLASSES[name][1] if name in CLASSES else name)


def sentence(series: history.Series, verdict: history.Verdict) -> str:
    """A verdict in words, with class and points."""
    v = verdict
    if v.status == "unknown":
        return "not comparable: no step, or no MFU where the job's other nights have one"
    if v.status == "learning":
        return f"no verdict yet: {words.plural(v.nights, 'earlier night')} of this series"
    assert v.lost is not None and v.noise is not None
    unit = "MFU points" if v.unit == "points" else "% of step time"
    size = f"{abs(v.lost):.2f} {unit}"
    if v.status == "steady":
        change = f"{-v.lost:+.2f}".replace("-0.00", "+0.00")
        text_ = f"steady: {change} {unit}, within the noise of ±{v.noise:.2f}"
        if v.standing is not None and abs(v.standing) > v.noise:
            side = "below" if v.standing > 0 else "above"
            text_ += f"; since {v.since} {abs(v.standing):.2f} {side} the level before"
        return text_
    if v.status == "shifted":
        head = f"as fast as before, but time moved between classes ({-v.lost:+.2f} {unit})"
    else:
        head = f"{'lost' if v.lost > 0 else 'gained'} {size} (noise ±{v.noise:.2f}, {words.plural(v.nights, 'night')})"
        if v.drift:
            head = f"{head}, little by little since {v.since}"
    grown = [c for c in v.costs if c.points * (v.lost if v.status != "shifted" else 1) > 0]
    grown.sort(key=lambda c: (-abs(c.points), c.name))
    if grown:
        head += ": " + ", ".join(
            f"{label(c.name)} {c.points:+.2f} ({c.before:.1f} → {c.after:.1f} % of the step)" for c in grown[:4]
        )
    if v.new_findings:
        head += f"; new: {', '.join(v.new_findings)}"
    if v.gone_findings:
        head += f"; gone: {', '.join(v.gone_findings)}"
    return head


def still_worse(verdict: history.Verdict) -> bool:
    """Whether a steady night is at a level that lacks points, beyond the noise, against the level before."""
    v = verdict
    return v.status == "steady" and v.standing is not None and v.noise is not None and v.standing > v.noise


# ---------------------------------------------------------------------------------------------------
# The page


def index(series: Sequence[history.Series], pages: Mapping[str, str]) -> str:
    """index.html: the newest verdict of each job, then each job over time."""
    jobs = [_job(each, pages) for each in series if each.nights]
    rank = {"worse": 0, "still worse": 1, "unknown": 2, "shifted": 3, "better": 4, "learning": 5, "steady": 6}
    summary = sorted(jobs, key=lambda job: (rank[job["status"]], job["key"]))
    newest = max((night.at_ns for each in series for night in each.nights), default=None)
    return (
        environment()
        .get_template("nights.html")
        .render(
            jobs=jobs,
            summary=summary,
            newest=None if newest is None else _day(newest),
            nights=sum(len(s.nights) for s in series),
        )
    )


def _job(series: history.Series, pages: Mapping[str, str]) -> dict[str, Any]:
    last, verdict = series.nights[-1], series.verdicts[-1]
    told = [
        (night, v)
        for night, v in zip(series.nights, series.verdicts, strict=True)
        if v.status not in ("steady", "learning")
    ]
    classes = _class_rows(series.nights)
    return {
        "key": series.key,
        "job": series.job,
        "before": series.before,
        "status": "still worse" if still_worse(verdict) else verdict.status,
        "sentence": sentence(series, verdict),
        "last": last.run,
        "day": _day(last.at_ns),
        "page": f"runs/{last.run}.html" if last.run in pages else None,
        "mfu": last.measures.get("mfu"),
        "step": f.time(last.measures.get("step_ns")),
        "chart": both(_lines, series, classes),
        "classes": [(label(name), _color(name)) for name in classes],
        "changes": [
            {
                "run": night.run,
                "day": _day(night.at_ns),
                "status": v.status,
                "text": sentence(series, v),
                "page": f"runs/{night.run}.html" if night.run in pages else None,
            }
            for night, v in reversed(told)
        ],
        "table": _table(series, classes),
    }


def _day(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M")


def class_shares(measures: Mapping[str, float]) -> dict[str, float]:
    """Points of each class of a night, in the tree's order; mfu and compute_loss included."""
    shares: dict[str, float] = {}
    order = ["mfu", "compute_loss", *(c.name for c in tree.CATEGORIES)]
    for name in sorted(measures, key=lambda name: order.index(name) if name in order else len(order)):
        if name in order:
            known = history.class_of(name)
            shares[known] = shares.get(known, 0.0) + measures[name]
    return shares


def _class_rows(nights: Sequence[history.Night]) -> list[str]:
    top: dict[str, float] = {}
    for night in nights:
        for name, value in class_shares(night.measures).items():
            top[name] = max(top.get(name, 0.0), value)
    order = list(top)
    return [name for name in order if top[name] >= _SMALL_POINTS]


def _lines(series: history.Series, classes: Sequence[str], *, width: float) -> Markup:
    """A small line a class over the nights, each on its own scale from zero; marks where a verdict was told."""
    nights = series.nights
    left, right, row = (8, 54, 44) if width < 500 else (190, 70, 34)
    rows: list[tuple[str, str, list[float | None], str]] = [
        ("step time", "#7f8fa6", [night.measures.get("step_ns") for night in nights], "ns")
    ]
    shares = [class_shares(night.measures) for night in nights]
    rows += [(label(name), _color(name), [each.get(name, 0.0) for each in shares], "%") for name in classes]
    plot = width - left - right

    def x(index: int) -> float:
        return left + (plot * index / (len(nights) - 1) if len(nights) > 1 else plot / 2)

    parts: list[Markup] = []
    height = 22 + row * len(rows) + 22
    for index, verdict in enumerate(series.verdicts):
        if verdict.status in ("worse", "better", "shifted"):
            shade = {"worse": "#c1315f", "better": "#1c7c6e", "shifted": "#c9a50f"}[verdict.status]
            tip = tag("title", f"{verdict.run}: {sentence(series, verdict)}")
            parts.append(
                tag(
                    "line",
                    tip,
                    x1=x(index),
                    x2=x(index),
                    y1=12.0,
                    y2=height - 20.0,
                    stroke=shade,
                    stroke_width="1.5",
                    stroke_dasharray="3 3",
                )
            )
            parts.append(text(x(index), 9, verdict.status, kind=FAINT, anchor="middle"))
    for number, (name, shade, values, unit) in enumerate(rows):
        top = 18 + number * row
        base = top + row - 6
        high = max((v for v in values if v is not None), default=0.0) or 1.0
        inset = 16 if width < 500 else 4
        room = row - 6 - inset
        parts.append(line(left, base, width - right, base))
        parts.append(
            text(
                0 if width < 500 else left - 10,
                top + 11 if width < 500 else base - 6,
                name,
                anchor=None if width < 500 else "end",
            )
        )
        points = [(x(i), base - room * v / high) for i, v in enumerate(values) if v is not None]
        if len(points) > 1:
            path = "M" + " L".join(f"{a:.1f},{b:.1f}" for a, b in points)
            parts.append(tag("path", d=path, fill="none", stroke=shade, stroke_width="1.8", stroke_linejoin="round"))
        for (a, b), night, value in zip(
            points,
            [n for n, v in zip(nights, values, strict=True) if v is not None],
            [v for v in values if v is not None],
            strict=True,
        ):
            shown = f.time(value) if unit == "ns" else f"{value:.2f} %"
            parts.append(tag("circle", tag("title", f"{night.run}: {name} {shown}"), cx=a, cy=b, r="2.2", fill=shade))
        last = next((v for v in reversed(values) if v is not None), None)
        end = f.ABSENT if last is None else f.time(last) if unit == "ns" else f"{last:.2f} %"
        parts.append(text(width - 2, base - 4, end, kind=FAINT, anchor="end"))
    parts.append(text(left, height - 4, _day(nights[0].at_ns)[:10], kind=FAINT))
    if len(nights) > 1:
        parts.append(text(width - right, height - 4, _day(nights[-1].at_ns)[:10], kind=FAINT, anchor="end"))
    return drawing(width, height, parts, title=f"{series.job}: step time, MFU and classes over {len(nights)} nights")


def _table(series: history.Series, classes: Sequence[str]) -> Table:
    columns = [Column("run"), Column("night (UTC)"), Column("verdict"), Column("step time", True)]
    columns += [Column(f"{label(name)}, %", True) for name in classes]
    rows = []
    for night, verdict in zip(reversed(series.nights), reversed(series.verdicts), strict=True):
        shares = class_shares(night.measures)
        step_ns = night.measures.get("step_ns")
        cells = [Cell(night.run), Cell(_day(night.at_ns)), Cell(verdict.status), Cell(f.time(step_ns), step_ns)]
        cells += [Cell(f"{shares.get(name, 0.0):.2f}", shares.get(name, 0.0)) for name in classes]
        rows.append(tuple(cells))
    return Table(
        name=f"nights-{series.key}",
        about="Every night; classes in points of 100.",
        columns=tuple(columns),
        rows=tuple(rows),
    )


# ---------------------------------------------------------------------------------------------------
# Metrics


def openmetrics(series: Sequence[history.Series], runs: Mapping[str, int], now_s: float) -> str:
    """OpenMetrics 1.0 text: the newest night of each series, and the call itself.

    Ratios are 0 to 1. mfuloss_nightly_completed_timestamp_seconds changes at every call: alert on its age, since a
    batch that does not run tells nothing. runs: this call's runs by what became of them.
    """
    families: list[tuple[str, str, str, list[tuple[dict[str, str], float]]]] = []
    newest = [(s, s.nights[-1], s.verdicts[-1]) for s in series if s.nights]

    def labels(s: history.Series) -> dict[str, str]:
        return {"job": s.job, "series": s.key.rsplit("@", 1)[-1]}

    def family(name: str, unit: str, text_: str, samples: list[tuple[dict[str, str], float]]) -> None:
        families.append((name, unit, text_, samples))

    family(
        "mfuloss_mfu_ratio",
        "ratio",
        "MFU of the newest night.",
        [(labels(s), n.measures["mfu"] / 100) for s, n, _ in newest if "mfu" in n.measures],
    )
    family(
        "mfuloss_class_share_ratio",
        "ratio",
        "Share of the step time of each class in the newest night.",
        [
            ({**labels(s), "class": name}, value / 100)
            for s, n, _ in newest
            for name, value in class_shares(n.measures).items()
        ],
    )
    family(
        "mfuloss_step_time_seconds",
        "seconds",
        "Mean step time of the newest night.",
        [(labels(s), n.measures["step_ns"] / 1e9) for s, n, _ in newest if "step_ns" in n.measures],
    )
    family(
        "mfuloss_lost_ratio",
        "ratio",
        "What the newest night lost against its level: MFU, or growth of the step time where MFU is not known.",
        [(labels(s), v.lost / 100) for s, _, v in newest if v.lost is not None],
    )
    family(
        "mfuloss_noise_ratio",
        "ratio",
        "What a loss must exceed to be told.",
        [(labels(s), v.noise / 100) for s, _, v in newest if v.noise is not None],
    )
    family(
        "mfuloss_standing_loss_ratio",
        "ratio",
        "What the present level lacks against the level before it.",
        [(labels(s), v.standing / 100) for s, _, v in newest if v.standing is not None],
    )
    family(
        "mfuloss_worse",
        "",
        "1 if the newest night is worse than its level, beyond the noise.",
        [(labels(s), float(v.status == "worse")) for s, _, v in newest],
    )
    family(
        "mfuloss_night_timestamp_seconds",
        "seconds",
        "When the newest night's run started, Unix time.",
        [(labels(s), n.at_ns / 1e9) for s, n, _ in newest],
    )
    family(
        "mfuloss_nightly_runs",
        "",
        "Runs of the inbox by what the last call did with them.",
        [({"state": state}, float(count)) for state, count in runs.items()],
    )
    family(
        "mfuloss_nightly_completed_timestamp_seconds",
        "seconds",
        "When the last call ended, Unix time.",
        [({}, now_s)],
    )
    lines: list[str] = []
    for name, unit, text_, samples in families:
        lines += [f"# TYPE {name} gauge", *([f"# UNIT {name} {unit}"] if unit else []), f"# HELP {name} {text_}"]
        lines += [f"{name}{_labels(given)} {value:.12g}" for given, value in samples]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(given: Mapping[str, str]) -> str:
    if not given:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in given.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
