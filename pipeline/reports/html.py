"""The report as one HTML file: nothing is fetched, everything from a trace is escaped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from pipeline.model import categories as tree
from pipeline.reports import charts, palette, tables, words
from pipeline.reports import figures as f
from pipeline.reports.data import Fit, Report, SizeBin
from pipeline.reports.story import evidence_words

if TYPE_CHECKING:
    from jinja2 import Environment

_PLOTS = 4
"""Size-versus-bandwidth plots drawn, those of most messages first; the tables have all paths."""
_ORDER = tuple(c.name for c in tree.CATEGORIES)


@cache
def environment() -> Environment:
    """Templates with autoescape always on and undefined names an error (imports jinja2)."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("pipeline.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals.update(f=f, label_of=words.label_of, evidence_words=evidence_words, color=palette.color)
    return found


def both(draw: Callable[..., Markup], *arguments: Any, wide: int = charts.WIDE, **named: Any) -> Markup:
    """A drawing for wide screens and paper and one for phones; the page shows one of them."""
    drawings = draw(*arguments, width=wide, **named), draw(*arguments, width=charts.NARROW, **named)
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(*drawings)


def render(report: Report) -> str:
    template = environment().get_template("report.html")
    return template.render(
        r=report,
        t=tables,
        step_name=words.step_name(report),
        unit=words.unit(report),
        scope=words.scope_words(report.scope),
        lines=words.step_time_lines(report),
        classes=[(row, words.class_figures(row)) for row in report.classes],
        patterns=charts.patterns(),
        waterfall=both(charts.waterfall, report) if report.bars else "",
        by_step=_by_step(report),
        by_rank=_by_rank(report),
        plots=_plots(report),
        more_plots=max(len(_paths(report)) - _PLOTS, 0),
        timeline=_timeline(report),
        whatifs=_whatifs(report),
        heat=heat(report),
        used=[c.category for c in report.categories],
    )


def heat(report: Report) -> dict[str, Any]:
    """What the heat maps draw, in whole µs: small enough for a page, exact enough for a colour and a tooltip."""
    cells = report.cells
    shown = {row.category: row for row in report.categories}
    layers = [
        {"name": "wall time", "label": words.step_name(report), "evidence": "measured", "us": _micro(cells.wall_ns)}
    ]
    for name in cells.categories:
        row = shown.get(name)
        levels = evidence_words(tuple(level.evidence for level in row.levels)) if row else ""
        layers.append(
            {"name": name, "label": words.label_of(name), "evidence": levels, "us": _micro(cells.categories[name])}
        )
    counted = {row.step for row in report.steps if row.counted}
    scale = [cells.steps_per_column > 1 or step in counted for step in cells.steps]
    return {
        "unit": words.unit(report),
        "ranks": cells.ranks,
        "steps": cells.steps,
        "per": cells.steps_per_column,
        "scale": scale,
        "layers": layers,
    }


def _micro(matrix: tuple[tuple[int | None, ...], ...]) -> list[list[int | None]]:
    return [[None if ns is None else round(ns / 1000) for ns in line] for line in matrix]


def _by_step(report: Report) -> Markup | str:
    if len(report.steps) < 2:
        return ""
    rows = report.steps[:400]
    one = words.unit(report)
    top_ns = max((sum(s.categories.values()) for s in rows if s.counted), default=None)
    data = [
        (
            str(s.step),
            f"{one} {s.step}: mean over {s.ranks} ranks, longest {f.time(s.max_ns)} on rank {s.slowest_rank}",
            s.categories,
        )
        for s in rows
    ]
    return both(
        charts.breakdown,
        data,
        _stack(rows),
        top_ns=top_ns,
        title=f"{words.step_name(report)} by {one}, mean over the ranks",
    )


def _by_rank(report: Report) -> Markup | str:
    rows = [row for row in report.ranks if row.steps][:512]
    if len(rows) < 2:
        return ""
    one = words.unit(report)
    data = [
        (str(r.rank), f"rank {r.rank}: mean {f.time(r.mean_ns)} over {words.plural(r.steps, one)}", r.categories)
        for r in rows
    ]
    return both(charts.breakdown, data, _stack(rows), title=f"{words.step_name(report)} by rank, mean over its {one}s")


def _stack(rows: Any) -> list[str]:
    have = {name for row in rows for name in row.categories}
    return [name for name in _ORDER if name in have]


_Path = tuple[str | None, str | None, str | None]


def _paths(report: Report) -> list[tuple[_Path, list[SizeBin]]]:
    paths: dict[_Path, list[SizeBin]] = {}
    for found in report.sizes:
        paths.setdefault((found.node, found.nic, found.opcode_class), []).append(found)
    return sorted(paths.items(), key=lambda item: (-sum(b.n for b in item[1]), str(item[0])))


def _plots(report: Report) -> list[Mapping[str, Any]]:
    paths = _paths(report)[:_PLOTS]
    width = charts.WIDE if len(paths) == 1 else charts.HALF
    found: list[Mapping[str, Any]] = []
    for key, bins in paths:
        node, nic, op = key
        fit = _fit_of(key, report.fits)
        title = f"{words.path_of(node, nic)} {op or ''}: {sum(b.n for b in bins):,} messages"
        drawing = both(charts.bandwidth, bins, fit, wide=width, title=f"{title}, size against bandwidth")
        found.append({"title": title, "drawing": drawing, "fit": None if fit is None else words.fit_figures(fit)})
    return found


def _fit_of(key: _Path, fits: tuple[Fit, ...]) -> Fit | None:
    node, nic, op = key
    fitting = [x for x in fits if x.nic in (nic, None) and x.op in (op, None, "all") and x.node in (node, None)]
    return max(fitting, key=lambda x: (x.node is not None, x.alpha_ns is not None, x.n or 0), default=None)


def _timeline(report: Report) -> Markup | str:
    t = report.timeline
    if t is None or not t.items:
        return ""
    one = words.unit(report)
    title = f"rank {t.rank}, {one} {t.step}: GPU, proxy threads and NICs"
    return both(charts.timeline, t, _ORDER, unit_name=one, title=title)


def _whatifs(report: Report) -> Markup | str:
    rows = [w for w in report.whatifs if w.pessimistic_ns is not None or w.expected_ns is not None]
    if not rows or report.step_time is None:
        return ""
    now_ns = rows[0].base_ns or report.step_time.mean_ns
    return both(charts.whatifs, rows, now_ns, title="step time under each change")
