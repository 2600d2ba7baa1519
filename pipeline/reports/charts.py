"""Charts of a report as SVG: waterfall, breakdown by step or rank, size against bandwidth, timeline, what-ifs.

Every function takes a width in px, so a page can hold a wide and a narrow drawing of the same data with text of
the same size. Nothing is measured here: positions only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from pipeline.reports import figures as f
from pipeline.reports import palette
from pipeline.reports.data import Bar, Fit, Report, SizeBin, Timeline, WhatIf
from pipeline.reports.svg import FAINT, drawing, line, patterns, rect, tag, text
from pipeline.reports.words import EVIDENCE, label_of, rank_and_unit

__all__ = ["bandwidth", "breakdown", "patterns", "timeline", "waterfall", "whatifs"]

WIDE, HALF, NARROW = 960, 470, 360
_CHAR = 7.0
"""Rough width of a character at 12 px; labels are short and the room is generous."""


def waterfall(report: Report, width: int = WIDE, *, standalone: bool = False) -> Markup:
    """The MFU waterfall to 100 points; evidence by hatching."""
    bars = report.bars
    title = _waterfall_title(report)
    narrow = width < 600
    row_h, bar_h = (43, 14) if narrow else (26, 16)
    left = 0.0 if narrow else max((len(label_of(b.category)) for b in bars), default=0) * _CHAR + 16
    right = 4.0 if narrow else 190.0
    top = 46 if standalone else 24
    plot = width - left - right
    height = top + row_h * len(bars) + 30
    parts: list[Markup] = []
    if standalone:
        parts.append(text(0 if narrow else 8, 20, title, kind="ink strong"))

    def x(points: float) -> float:
        return left + plot * points / 100

    for tick in range(0, 101, 20):
        parts.append(line(x(tick), top - 4, x(tick), top + row_h * len(bars)))
        anchor = "start" if tick == 0 and narrow else "end" if tick == 100 and narrow else "middle"
        parts.append(text(x(tick), top - 8, f"{tick}", kind=FAINT, anchor=anchor))
    done = 0.0
    for i, bar in enumerate(bars):
        y = top + i * row_h
        start, done = done, done + max(bar.points, 0.0)
        bar_y = y + (18 if narrow else (row_h - bar_h) / 2)
        figures = f"{bar.shown} points · {f.time(bar.mean_ns)}"
        tip = f"{label_of(bar.category)}: {figures}, {_evidence(bar.evidence)}; {bar.text}"
        if narrow:
            parts.append(text(0, y + 13, label_of(bar.category)))
            parts.append(text(width - 2, y + 13, figures, kind=FAINT, anchor="end"))
        else:
            parts.append(text(left - 10, bar_y + 12, label_of(bar.category), anchor="end"))
            parts.append(text(width - right + 58, bar_y + 12, bar.shown, kind="ink strong", anchor="end"))
            parts.append(text(width - right + 68, bar_y + 12, f.time(bar.mean_ns), kind=FAINT))
        parts.append(
            _bar(
                x(start),
                bar_y,
                max(x(done) - x(start), 1.5),
                bar_h,
                _levels(report, bar),
                palette.color(bar.category),
                tip,
            )
        )
        if i + 1 < len(bars):
            next_y = bar_y + row_h
            parts.append(line(x(done), bar_y + bar_h, x(done), next_y, stroke_dasharray="2 2"))
    parts.append(_legend(left if not narrow else 0, height - 8, [level for bar in bars for level in bar.evidence]))
    if not narrow:
        parts.append(text(width - right + 58, top - 8, "points", kind=FAINT, anchor="end"))
        parts.append(text(width - right + 68, top - 8, f"per {rank_and_unit(report)}", kind=FAINT))
    return drawing(width, height, parts, title=title, standalone=standalone)


def _waterfall_title(report: Report) -> str:
    what = "MFU waterfall" if report.mfu_points is not None else "waterfall of wall time"
    return f"{what}, points of 100, {report.run}"


def _evidence(levels: Sequence[str]) -> str:
    return ", ".join(EVIDENCE.get(level, level) for level in levels)


def _levels(report: Report, bar: Bar) -> list[tuple[str, float]]:
    """(evidence, share) of a bar: by the time of each level where the category has several."""
    for row in report.categories:
        if row.category == bar.category and row.attributed_ns:
            return [(lv.evidence, lv.attributed_ns / row.attributed_ns) for lv in row.levels if lv.attributed_ns]
    weakest = max(bar.evidence, key=list(EVIDENCE).index, default="")
    return [(weakest, 1.0)]


def _bar(
    x: float, y: float, width: float, height: float, levels: list[tuple[str, float]], fill: str, tip: str
) -> Markup:
    parts = [rect(x, y, width, height, fill=fill, rx="1.5")]
    at = x
    for level, share in levels:
        hatch = palette.HATCHES.get(level)
        if hatch:
            parts.append(rect(at, y, width * share, height, fill=f"url(#{hatch})", rx="1.5"))
        at += width * share
    return tag("g", tag("title", tip), *parts, class_="bar")


def _legend(x: float, y: float, levels: Sequence[str]) -> Markup:
    """Only the kinds of evidence that occur."""
    parts = []
    kinds = [("measured", "")] if any(level.startswith("measured") for level in levels) else []
    kinds += [(level, palette.HATCHES[level]) for level in palette.HATCHES if level in levels]
    for name, hatch in kinds:
        parts.append(rect(x, y - 10, 18, 11, fill="#7f8fa6", rx="1.5"))
        if hatch:
            parts.append(rect(x, y - 10, 18, 11, fill=f"url(#{hatch})", rx="1.5"))
        parts.append(text(x + 24, y, name, kind=FAINT))
        x += 40 + len(name) * _CHAR
    return tag("g", *parts)


def breakdown(
    rows: Sequence[tuple[str, str, Mapping[str, float]]],
    categories: Sequence[str],
    width: int = WIDE,
    *,
    title: str,
    top_ns: float | None = None,
) -> Markup:
    """Stacked columns: one a row of (axis label, tip, category → ns), in the order of `categories`.

    top_ns: the tallest column that the scale is for; a taller one is cut and says how tall it is.
    """
    left, top, plot_h, bottom = 56, 22, 200, 26
    plot = width - left - 4
    longest = top_ns or max((sum(parts.values()) for _, _, parts in rows), default=0) or 1
    ticks, unit, per_unit = _ticks(longest)
    scale = plot_h / max(longest, ticks[-1] * per_unit if ticks else 1)
    parts: list[Markup] = []
    for tick in ticks:
        y = top + plot_h - tick * per_unit * scale
        parts += [line(left, y, width - 4, y), text(left - 6, y + 4, f"{tick:g} {unit}", kind=FAINT, anchor="end")]
    pitch = plot / max(len(rows), 1)
    column = min(max(pitch * 0.8, 0.8), 46)
    paths: dict[str, list[str]] = {}
    tips = []
    every = max(1, math.ceil(len(rows) * 34 / plot))
    for i, (label, tip, values) in enumerate(rows):
        x = left + pitch * i + (pitch - column) / 2
        base = float(top + plot_h)
        whole_ns = sum(values.values())
        cut = whole_ns * scale > plot_h + 1
        for name in categories:
            h = min(values.get(name, 0) * scale, base - top + (6 if cut else 1))
            if h >= 0.05:
                base -= h
                paths.setdefault(name, []).append(f"M{x:.1f} {base:.1f}h{column:.1f}v{h:.1f}h{-column:.1f}z")
        if cut:
            tips.append(tag("path", d=f"M{x - 3:.1f} {top + 5}l{column + 6:.1f} -5", class_="cut"))
            if column >= 14:
                at = x + column / 2
                tips.append(text(at, top - 10, f.time(whole_ns), kind=FAINT, anchor="start" if i == 0 else "middle"))
        if len(rows) <= 256:
            tips.append(rect(x, top, column, plot_h, tag("title", tip), fill="transparent"))
        if i % every == 0:
            parts.append(text(left + pitch * (i + 0.5), top + plot_h + 16, label, kind=FAINT, anchor="middle"))
    parts += [
        tag("path", tag("title", label_of(name)), d="".join(d), fill=palette.color(name)) for name, d in paths.items()
    ]
    return drawing(width, top + plot_h + bottom, [*parts, *tips], title=title)


def _ticks(longest_ns: float) -> tuple[list[float], str, float]:
    """Round ticks up to a duration: values, their unit, ns in one unit."""
    per, unit = next(((n, u) for n, u in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")) if longest_ns >= n), (1.0, "ns"))
    step = _round_step(longest_ns / per / 4)
    return [step * i for i in range(1 + int(longest_ns / per / step + 1e-9))], unit, per


def ticks_between(low_ns: float, high_ns: float, n: int) -> list[float]:
    """About `n` round durations from low to high, zero among them where it lies between."""
    span = max(high_ns - low_ns, 1.0)
    per = next((p for p in (1e9, 1e6, 1e3) if span >= p), 1.0)
    step = _round_step(span / per / n) * per
    return [step * i for i in range(math.ceil(low_ns / step), math.floor(high_ns / step) + 1)]


def _round_step(rough: float) -> float:
    magnitude = 10 ** math.floor(math.log10(max(rough, 1e-9)))
    return float(next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= rough - 1e-12))


def bandwidth(bins: Sequence[SizeBin], fit: Fit | None, width: int = WIDE, *, title: str) -> Markup:
    """Message size against effective bandwidth, both logarithmic; quartiles as whiskers, the fit as a line with its band."""
    left, top, right, plot_h = 70, 14, 16, 230
    plot = width - left - right
    rates = [b.bytes / ns * 1e9 for b in bins for ns in (b.flight_p25_ns, b.flight_p75_ns) if ns > 0]
    beta = fit.beta_bytes_per_s if fit else None
    sizes = [b.bytes for b in bins] + ([int(fit.n_half_bytes)] if fit and fit.n_half_bytes else [])
    x0, x1 = math.log2(min(sizes)) - 0.5, math.log2(max(sizes)) + 0.5
    if fit and fit.alpha_ns is not None and beta:
        first = 2**x0
        rates.append(first / ((fit.alpha_hi or fit.alpha_ns) / 1e9 + first / (fit.beta_lo or beta)))
    y0 = math.log10(min(rates)) - 0.05
    y1 = math.log10(max([*rates, beta or 0])) + 0.12

    def x(n_bytes: float) -> float:
        return left + plot * (math.log2(n_bytes) - x0) / (x1 - x0)

    def y(rate: float) -> float:
        return top + plot_h * (1 - (math.log10(rate) - y0) / (y1 - y0))

    parts: list[Markup] = []
    powers = list(range(math.ceil(x0), math.floor(x1) + 1))
    for p in powers[:: max(1, math.ceil(len(powers) * 56 / plot))]:
        parts += [
            line(x(2**p), top, x(2**p), top + plot_h),
            text(x(2**p), top + plot_h + 16, f.size(2**p), kind=FAINT, anchor="middle"),
        ]
    for d in range(math.floor(y0), math.ceil(y1) + 1):
        for m in (1, 2, 5):
            rate = m * 10.0**d
            if y0 <= math.log10(rate) <= y1:
                parts += [
                    line(left, y(rate), width - right, y(rate)),
                    text(left - 6, y(rate) + 4, f.bandwidth(rate), kind=FAINT, anchor="end"),
                ]
    parts.append(text(width - right, top + plot_h + 32, "message size", kind=FAINT, anchor="end"))
    parts.append(text(left, top + plot_h + 32, "bandwidth, one way", kind=FAINT))
    if fit and fit.alpha_ns is not None and beta:
        parts += _fit_lines(fit, x, y, (2**x0, 2**x1), (10**y0, 10**y1))
    parts += [_dot(b, x, y) for b in bins if b.flight_p50_ns > 0]
    return drawing(width, top + plot_h + 40, parts, title=title)


def _fit_lines(
    fit: Fit,
    x: Callable[[float], float],
    y: Callable[[float], float],
    sizes: tuple[float, float],
    rates: tuple[float, float],
) -> list[Markup]:
    beta, alpha = fit.beta_bytes_per_s, fit.alpha_ns
    assert beta and alpha is not None
    grid = [sizes[0] * (sizes[1] / sizes[0]) ** (i / 60) for i in range(61)]

    def rate(n: float, alpha_ns: float, beta_bytes_per_s: float) -> float:
        return min(max(n / (alpha_ns / 1e9 + n / beta_bytes_per_s), rates[0]), rates[1])

    def path(values: list[tuple[float, float]]) -> str:
        return "M" + "L".join(f"{x(n):.1f} {y(r):.1f}" for n, r in values)

    parts = []
    if None not in (fit.alpha_lo, fit.alpha_hi, fit.beta_lo, fit.beta_hi):
        upper = [(n, rate(n, fit.alpha_lo or 0, fit.beta_hi or beta)) for n in grid]
        lower = [(n, rate(n, fit.alpha_hi or 0, fit.beta_lo or beta)) for n in reversed(grid)]
        parts.append(
            tag(
                "path",
                tag("title", "95 % intervals of α and β"),
                d=path(upper + lower) + "Z",
                fill="#dd7a35",
                fill_opacity="0.22",
            )
        )
    parts.append(
        tag(
            "path", d=path([(n, rate(n, alpha, beta)) for n in grid]), fill="none", stroke="#dd7a35", stroke_width="1.8"
        )
    )
    parts.append(
        tag("line", x1=x(sizes[0]), x2=x(sizes[1]), y1=y(beta), y2=y(beta), stroke="#dd7a35", stroke_dasharray="4 3")
    )
    parts.append(text(x(sizes[0]) + 6, y(beta) - 5, f"β {f.bandwidth(beta)}", kind=FAINT))
    if fit.n_half_bytes:
        at = x(fit.n_half_bytes)
        parts.append(
            tag("line", x1=at, x2=at, y1=y(beta / 2), y2=y(rates[0]), stroke="#dd7a35", stroke_dasharray="2 3")
        )
        left_of = at > x(sizes[1]) - 90
        parts.append(
            text(
                at + (-5 if left_of else 5),
                y(rates[0]) - 6,
                f"n½ {f.size(fit.n_half_bytes)}",
                kind=FAINT,
                anchor="end" if left_of else None,
            )
        )
    return parts


def _dot(b: SizeBin, x: Callable[[float], float], y: Callable[[float], float]) -> Markup:
    rate = b.bytes / b.flight_p50_ns * 1e9
    tip = (
        f"{f.size(b.bytes)}: {f.bandwidth(rate)} at the median flight of {f.time(b.flight_p50_ns)}, {b.n:,} messages, "
    )
    tip += "nothing else in flight" if b.alone else "others in flight"
    hue = palette.COLORS["rdma_transfer"]
    whisker = tag(
        "line", x1=x(b.bytes), x2=x(b.bytes), y1=y(b.bytes / b.flight_p25_ns * 1e9) if b.flight_p25_ns else y(rate),
        y2=y(b.bytes / b.flight_p75_ns * 1e9), stroke=hue, stroke_opacity="0.6",
    )  # fmt: skip
    radius = min(2.4 + math.log10(b.n), 6.0)
    dot = tag(
        "circle", cx=x(b.bytes), cy=y(rate), r=radius, fill=hue if b.alone else "none", stroke=hue, stroke_width="1.4"
    )
    return tag("g", tag("title", tip), whisker, dot)


_LANES = (("attribution", "attributed"), ("gpu", "GPU"), ("proxy", "proxy"), ("nic", "NIC"))


def timeline(t: Timeline, order: Sequence[str], width: int = WIDE, *, unit_name: str = "step", title: str) -> Markup:
    """Rows over the window: attribution, GPU, proxy threads, NICs. Paler where a mark stands for things with gaps between."""
    narrow = width < 600
    rows: list[tuple[str, str, str]] = []
    for lane, name in _LANES:
        names = list(dict.fromkeys(i.row_name for i in t.items if i.lane == lane))
        if lane == "attribution":
            names.sort(key=lambda n: order.index(n) if n in order else len(order))
        rows += [(lane, name, row) for row in names]
    left = 0 if narrow else 190
    row_h, bar_h = (30, 11) if narrow else (21, 13)
    top = 26
    plot = width - left - 6
    span = max(t.end_ns - t.start_ns, 1)
    ticks, unit, per = _ticks(span)
    parts: list[Markup] = []
    height = top + row_h * len(rows) + 14 * (len({lane for lane, _, _ in rows}) - 1) + 10
    offset_ns = t.start_ns - t.step_start_ns
    if len(ticks) > 4 and narrow:
        ticks = ticks[::2]
    for tick in ticks:
        x = left + plot * tick * per / span
        anchor = "start" if tick == 0 and narrow else "end" if x > width - 30 else "middle"
        parts += [line(x, top - 6, x, height - 4), text(x, top - 11, f"+{tick:g} {unit}", kind=FAINT, anchor=anchor)]
    y = float(top)
    before = rows[0][0] if rows else ""
    where = {}
    for lane, _, row in rows:
        if lane != before:
            y += 14
            before = lane
        where[lane, row] = y
        label = label_of(row) if lane == "attribution" else row
        if narrow:
            parts.append(text(0, y + 11, label, kind=FAINT))
        else:
            parts.append(text(left - 10, y + 14, label, anchor="end"))
        y += row_h
    for item in t.items:
        x = left + plot * (item.start_ns - t.start_ns) / span
        w = max(plot * (item.end_ns - item.start_ns) / span, 0.7)
        fill = palette.color(item.kind) if item.lane == "attribution" else palette.LANES.get(item.kind, "#a9b0ba")
        full = min(item.busy_ns / max(item.end_ns - item.start_ns, 1), 1.0)
        begin = f.time(item.start_ns - t.start_ns + offset_ns)
        tip = f"{item.label or item.row_name}, from {begin} into the {unit_name}, {f.time(item.end_ns - item.start_ns)}"
        tip += f", {item.n} in all, {f.percent(full, 0)} of the time" if item.n > 1 else ""
        bar_y = where[item.lane, item.row_name] + (15 if narrow else 4)
        opacity = None if full > 0.95 else f"{0.3 + 0.65 * full:.2f}"
        parts.append(rect(x, bar_y, w, bar_h, tag("title", tip), fill=fill, fill_opacity=opacity))
    return drawing(width, height, parts, title=title)


def whatifs(rows: Sequence[WhatIf], now_ns: float, width: int = WIDE, *, title: str) -> Markup:
    """Step time under each change: bar from optimistic to pessimistic, tick at the expected value, a line at today's."""
    narrow = width < 600
    left = 0.0 if narrow else max(len(w.change) for w in rows) * _CHAR + 20
    right = 0.0 if narrow else 120.0
    row_h, top = (40, 26) if narrow else (28, 26)
    plot = width - left - right - 8
    longest = max([now_ns, *(w.pessimistic_ns or 0 for w in rows)])
    height = top + row_h * len(rows) + 8
    ticks, unit, per = _ticks(longest)
    parts: list[Markup] = []

    def x(ns: float) -> float:
        return left + plot * ns / longest

    for tick in ticks:
        anchor = "start" if tick == 0 and narrow else "middle"
        parts += [
            line(x(tick * per), top - 6, x(tick * per), height),
            text(x(tick * per), top - 11, f"{tick:g} {unit}", kind=FAINT, anchor=anchor),
        ]
    for i, w in enumerate(rows):
        y = top + i * row_h
        bar_y = y + (18 if narrow else 6)
        low, high = w.optimistic_ns, w.pessimistic_ns
        expected = "bounds only" if w.expected_ns is None else f.time(w.expected_ns)
        parts.append(text(0, y + 13, w.change) if narrow else text(left - 10, bar_y + 12, w.change, anchor="end"))
        parts.append(text(width - 2, y + 13 if narrow else bar_y + 12, expected, kind=FAINT, anchor="end"))
        if low is not None and high is not None:
            tip = f"{w.change}: {f.time(low)} to {f.time(high)}, {expected}"
            parts.append(rect(x(low), bar_y, max(x(high) - x(low), 2), 15, tag("title", tip), fill="#74bfae", rx="1.5"))
        if w.expected_ns is not None:
            parts.append(rect(x(w.expected_ns) - 1.5, bar_y - 2, 3, 19, fill="#1c7c6e"))
    parts.append(
        tag(
            "line",
            x1=x(now_ns),
            x2=x(now_ns),
            y1=float(top - 6),
            y2=float(height),
            stroke="#c1315f",
            stroke_dasharray="4 3",
        )
    )
    return drawing(width, height, parts, title=title)
