"""A job's nights against its own history: levels, what each night lost, and by which class. Pure: no I/O.

What a night lost is split over categories exactly. With MFU = 100·I/T and the model's ideal time I unchanged,
MFU0 - MFU1 = Σ MFU1·(t1 - t0)/T0 over the categories' times t; in shares p of each night's own time that is
(p1·MFU0 - p0·MFU1)/100 points. Without MFU the unit is percent of the former step time.

Nights are read in order. Those that agree are a level; its median is what the next night is compared with, and
1.4826·MAD (a normal distribution's standard deviation, by the median absolute deviation) is its spread. A night beyond
the noise begins a new level, so a lasting change is told once, and its end once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median, stdev
from typing import Any

from pipeline.model import categories as tree

DAY_NS = 86_400 * 10**9
_NOT_A_SHARE = ("mfu", "step_ns", "ranks")
_MAD_TO_SIGMA = 1.4826
_FEW = 14
"""Nights below which the MAD alone is not to be trusted."""


@dataclass(frozen=True)
class Rules:
    """When a change is a change. floor_points: never less than this, in points (percent of step time without MFU).

    mad_factor: standard deviations of the nights; min_nights: fewer are no history; history_ns: how far back it reaches.
    """

    floor_points: float = 0.5
    mad_factor: float = 5.0
    min_nights: int = 5
    history_ns: int = 28 * DAY_NS


@dataclass(frozen=True)
class Night:
    """A run. measures: points by category (mfu and compute_loss in place of compute), step_ns, ranks."""

    run: str
    at_ns: int
    measures: Mapping[str, float]
    findings: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cost:
    """A class and the points that it cost (negative: gave back); before and after: its shares of the step time."""

    name: str
    points: float
    before: float
    after: float


@dataclass(frozen=True)
class Verdict:
    """What a night's comparison says.

    status: worse, better, shifted (the sum is as before, but classes grew and shrank), steady, learning (too little
    history) or unknown (nothing to compare). lost: points against the level before; noise: what it must exceed to
    count. since: the run with which the present level began, where another one was before it; standing: points that
    the present level lacks against that. drift: the status was found over many nights, beginning with `since`.
    """

    run: str
    status: str
    unit: str
    lost: float | None = None
    noise: float | None = None
    costs: tuple[Cost, ...] = ()
    new_findings: tuple[str, ...] = ()
    gone_findings: tuple[str, ...] = ()
    nights: int = 0
    since: str | None = None
    standing: float | None = None
    drift: bool = False


@dataclass(frozen=True)
class Series:
    """Nights that can be compared: one job, one model, size and hardware. key: its name in pages and metrics.

    before: what differs from the job's series before this one, in words.
    """

    key: str
    job: str
    identity: Mapping[str, Any]
    nights: tuple[Night, ...]
    verdicts: tuple[Verdict, ...]
    before: str | None = None


@dataclass
class _Level:
    nights: list[Night] = field(default_factory=list)
    sigma: dict[str, float] = field(default_factory=dict)
    """Spread that the level before had, for as long as this one has too few nights to tell its own."""


def judge(nights: Sequence[Night], rules: Rules | None = None) -> list[Verdict]:
    """A verdict a night, in order of time. The nights must be of one series: same model, size and hardware."""
    rules = rules or Rules()
    nights = sorted(nights, key=lambda night: (night.at_ns, night.run))
    unit = "points" if any(_known(night, "mfu") for night in nights) else "percent"
    needed = ("step_ns", "mfu") if unit == "points" else ("step_ns",)
    levels: list[_Level] = []
    verdicts = []
    for night in nights:
        if not all(_known(night, measure) for measure in needed):
            verdicts.append(Verdict(night.run, "unknown", unit))
            continue
        verdicts.append(_judge_one(night, levels, unit, rules))
    return verdicts


def _known(night: Night, measure: str) -> bool:
    return night.measures.get(measure, 0.0) > 0


def _judge_one(night: Night, levels: list[_Level], unit: str, rules: Rules) -> Verdict:
    if not levels:
        levels.append(_Level())
    level = levels[-1]
    recent = [each for each in level.nights if night.at_ns - each.at_ns <= rules.history_ns]
    if (len(levels) == 1 and len(recent) < rules.min_nights) or not recent:
        level.nights.append(night)
        return Verdict(night.run, "learning", unit, nights=len(recent))
    lost, costs, noise, sigma = _against(night, recent, level.sigma, unit, rules)
    beyond = abs(lost) > noise["lost"]
    grown = tuple(c for c in costs if abs(c.points) > noise[c.name])
    shifted = not beyond and any(c.points > 2 * noise[c.name] for c in grown)
    codes, gone = _findings(night, recent)
    drift = False
    if beyond or shifted:
        status = "shifted" if shifted else "worse" if lost > 0 else "better"
        if not _back(night, levels, unit, rules):
            levels.append(_Level([night], sigma))
    else:
        status, grown = "steady", ()
        level.nights.append(night)
        found = _drift(level, unit, rules, night.at_ns)
        if found is not None:
            old, new = found
            lost, costs, noise, sigma = _between(new, old, level.sigma, unit, rules)
            status, drift = "worse" if lost > 0 else "better", True
            grown = tuple(c for c in costs if abs(c.points) > noise[c.name])
            level.nights = old
            levels.append(_Level(new, sigma))
    if status == "steady":
        codes = gone = ()
    since, standing = _standing(levels, unit)
    if status == "worse" and not grown:
        grown = tuple(c for c in costs if c.points > 0)[:1]
    return Verdict(
        run=night.run,
        status=status,
        unit=unit,
        lost=lost,
        noise=noise["lost"],
        costs=grown,
        new_findings=codes,
        gone_findings=gone,
        nights=len(recent),
        since=since,
        standing=standing,
        drift=drift,
    )


def _back(night: Night, levels: list[_Level], unit: str, rules: Rules) -> bool:
    """Whether the night is at the level before a short excursion; then that one goes on, and the excursion is dropped."""
    if len(levels) < 2 or len(levels[-1].nights) >= rules.min_nights:
        return False
    before = levels[-2]
    lost, costs, noise, _ = _against(night, before.nights, before.sigma, unit, rules)
    if abs(lost) > noise["lost"] or any(c.points > 2 * noise[c.name] for c in costs):
        return False
    levels.pop()
    before.nights.append(night)
    return True


def _standing(levels: list[_Level], unit: str) -> tuple[str | None, float | None]:
    if len(levels) < 2:
        return None, None
    base, now = _middle(levels[-2].nights), _middle(levels[-1].nights)
    return levels[-1].nights[0].run, _lost(now, base, unit)


def _findings(night: Night, level: Sequence[Night]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Codes that tonight has and less than half of the level's nights had, and the reverse."""
    usual = {code for each in level for code in each.findings}
    usual = {code for code in usual if 2 * sum(code in each.findings for each in level) >= len(level)}
    return tuple(sorted(night.findings - usual)), tuple(sorted(usual - night.findings))


# ---------------------------------------------------------------------------------------------------
# Two levels


def _middle(nights: Sequence[Night]) -> dict[str, float]:
    names = sorted({name for night in nights for name in night.measures})
    return {name: median(night.measures.get(name, 0.0) for night in nights) for name in names}


def _lost(now: Mapping[str, float], base: Mapping[str, float], unit: str) -> float:
    if unit == "points":
        return base["mfu"] - now["mfu"]
    return 100 * (now["step_ns"] / base["step_ns"] - 1)


def _costs(now: Mapping[str, float], base: Mapping[str, float], unit: str) -> list[Cost]:
    """Loss by class, largest first; classes are the four headlines, and each category outside them."""
    names = sorted({*now, *base} - set(_NOT_A_SHARE), key=lambda name: (_place(name), name))
    if unit == "points":
        by_name = {n: (now.get(n, 0.0) * base["mfu"] - base.get(n, 0.0) * now["mfu"]) / 100 for n in names}
    else:
        longer = now["step_ns"] / base["step_ns"]
        by_name = {n: now.get(n, 0.0) * longer - base.get(n, 0.0) for n in names}
    _cancel_renaming(by_name)
    classes: dict[str, list[float]] = {}
    for name in names:
        total = classes.setdefault(class_of(name), [0.0, 0.0, 0.0])
        for index, value in enumerate((by_name[name], base.get(name, 0.0), now.get(name, 0.0))):
            total[index] += value
    costs = [Cost(name, *total) for name, total in classes.items()]
    return sorted(costs, key=lambda cost: (-cost.points, cost.name))


def _cancel_renaming(costs: dict[str, float]) -> None:
    """Time that only changed its name is no one's loss: what a coarse category gave and finer ones under it took.

    A source that comes or goes moves time between `comm_unattributed` and its finer categories. The wire's time
    is taken first: bytes are work, whoever posts them; the rest in proportion.
    """
    for parent in ("ctl_cpu", "comm_unattributed", "idle_other"):
        amount = costs.get(parent, 0.0)
        family = [n for n in costs if n != parent and _under(n, parent) and costs[n] * amount < 0]
        first = [n for n in family if n == "rdma_transfer"]
        for group in (first, [n for n in family if n not in first]):
            there = sum(abs(costs[n]) for n in group)
            moved = min(abs(costs.get(parent, 0.0)), there)
            if not moved:
                continue
            for name in group:
                costs[name] -= math.copysign(moved * abs(costs[name]) / there, costs[name])
            costs[parent] -= math.copysign(moved, amount)


def _under(name: str, parent: str) -> bool:
    known = tree.BY_NAME.get(name)
    return known is not None and known.parent is not None and (known.parent == parent or _under(known.parent, parent))


def class_of(category: str) -> str:
    """The headline class of a category, or the category itself where it has none."""
    known = tree.BY_NAME.get(category)
    return str(known.headline) if known is not None and known.headline is not None else category


def _place(name: str) -> int:
    known = tree.BY_NAME.get(name)
    return known.priority if known is not None else 0


_Against = tuple[float, tuple[Cost, ...], dict[str, float], dict[str, float]]


def _against(night: Night, level: Sequence[Night], inherited: Mapping[str, float], unit: str, rules: Rules) -> _Against:
    """(lost, costs, noise, spread) of a night against a level; noise and spread by class, and of `lost`."""
    return _between([night], level, inherited, unit, rules)


def _between(
    new: Sequence[Night], old: Sequence[Night], inherited: Mapping[str, float], unit: str, rules: Rules
) -> _Against:
    base, now = _middle(old), _middle(new)
    costs = tuple(_costs(now, base, unit))
    samples: dict[str, list[float]] = {"lost": [_lost(each.measures, base, unit) for each in old]}
    for each in old:
        own = {cost.name: cost.points for cost in _costs(each.measures, base, unit)}
        for cost in costs:
            samples.setdefault(cost.name, []).append(own.get(cost.name, 0.0))
    sigma = {name: _spread(values) for name, values in samples.items()}
    if len(old) < rules.min_nights:
        sigma = {name: max(value, inherited.get(name, 0.0)) for name, value in sigma.items()}
    noise = {name: max(rules.floor_points, rules.mad_factor * value) for name, value in sigma.items()}
    return _lost(now, base, unit), costs, noise, sigma


def _spread(values: Sequence[float]) -> float:
    """Standard deviation about the median, which `values` are relative to; larger than it is while they are few.

    A MAD of five nights is often far too small (in 1 of 100 cases by a factor of 5), so few nights are held to their
    plain standard deviation as well, and 1 + 4/n covers what is left: with a factor of 5 about 1 night in 1 000 of
    normal noise is beyond, at any n.
    """
    sigma = _MAD_TO_SIGMA * median(abs(x) for x in values)
    if 2 <= len(values) < _FEW:
        sigma = max(sigma, stdev(values))
    return sigma * (1 + 4 / len(values))


def _drift(level: _Level, unit: str, rules: Rules, now_ns: int) -> tuple[list[Night], list[Night]] | None:
    """The split of a level's nights whose halves differ most, where they differ beyond the error of their medians.

    Finds what is too small or too slow for one night: each side has min_nights at least, spread is pooled over both,
    and the standard error of a median is 1.2533·σ/√n.
    """
    nights = [each for each in level.nights if now_ns - each.at_ns <= rules.history_ns]
    values = [each.measures["mfu"] if unit == "points" else each.measures["step_ns"] for each in nights]
    scale = 1.0 if unit == "points" else 100 / median(values) if values else 1.0
    best: tuple[float, int] | None = None
    for cut in range(rules.min_nights, len(values) - rules.min_nights + 1):
        left, right = values[:cut], values[cut:]
        a, b = median(left), median(right)
        residuals = [*(x - a for x in left), *(x - b for x in right)]
        # The best of many splits is taken: few nights on a side fit noise best, so they widen it.
        pooled = max(_spread(residuals), stdev(residuals)) * (1 + 2 / min(len(left), len(right)))
        error = 1.2533 * pooled * math.sqrt(1 / len(left) + 1 / len(right))
        change = abs(a - b)
        if change * scale <= rules.floor_points or change <= rules.mad_factor * error:
            continue
        if best is None or change > best[0]:
            best = (change, cut)
    return None if best is None else (nights[: best[1]], nights[best[1] :])
