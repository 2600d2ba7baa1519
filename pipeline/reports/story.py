"""What happened, in three sentences to paste into an incident channel: each with its number and its evidence."""

from __future__ import annotations

from decimal import Decimal

from pipeline.model.categories import CTL_CPU_LEAVES
from pipeline.reports import figures as f
from pipeline.reports.data import Bar, Finding, Report
from pipeline.reports.words import EVIDENCE, NO_STEPS, label_of, plural, rank_and_unit, step_name, unit, windows

_GRAVE = ("critical", "warning")


def happened(report: Report) -> tuple[str, ...]:
    """Step time and MFU; the largest loss; the first cause that a detector or the waits name."""
    if report.step_time is None:
        return ()
    sentences = [_step(report)]
    losses = [bar for bar in report.bars if bar.category not in ("mfu", "compute")]
    proxy = [bar for bar in losses if bar.category in (*CTL_CPU_LEAVES, "ctl_cpu")]
    others = [bar for bar in losses if bar not in proxy]
    if sum(bar.points for bar in proxy) > max((bar.points for bar in others), default=0):
        sentences.append(_proxy_loss(report, proxy))
    elif losses:
        sentences.append(_loss(report, max(others, key=lambda bar: bar.points)))
    sentences.append(_cause(report))
    return tuple(sentences)


def evidence_words(levels: tuple[str, ...]) -> str:
    return ", ".join(EVIDENCE.get(level, level) for level in levels)


def _step(report: Report) -> str:
    t = report.step_time
    assert t is not None
    if unit(report) == "window":
        return f"{NO_STEPS[0].upper()}{NO_STEPS[1:]}; what follows is of {windows(report)}, and no claim about steps."
    name = step_name(report)
    name = name[0].upper() + name[1:]
    span = f"{name} was {f.time(t.mean_ns)} on average ({f.time(t.min_ns)} to {f.time(t.max_ns)}; {plural(t.ranks, 'rank')}, {plural(t.steps, 'step')}"
    span += ")" if t.sources == "nvtx" else f"; steps {t.sources})"
    if t.kind == "decode":
        return f"{span}."
    if report.mfu_points is None:
        return f"{span}; MFU is not known: {report.mfu_absent}."
    return f"{span} at an MFU of {report.mfu_points:.2f} % [{evidence_words((report.mfu_evidence or '',))}]."


def _loss(report: Report, bar: Bar) -> str:
    return (
        f"The largest loss is {label_of(bar.category)} ({bar.category}): {f.time(bar.mean_ns)} per {rank_and_unit(report)}, "
        f"{bar.shown} points [{evidence_words(bar.evidence)}]."
    )


def _proxy_loss(report: Report, proxy: list[Bar]) -> str:
    """The CPU proxy is one serial resource: its leaves are one loss."""
    if len(proxy) == 1:
        return _loss(report, proxy[0])
    leaves = ", ".join(f"{label_of(bar.category)} {bar.shown}" for bar in proxy)
    evidence = dict.fromkeys(level for bar in proxy for level in bar.evidence)
    total = _sum([bar.shown for bar in proxy])
    return (
        f"The largest loss is the CPU proxy: {f.time(sum(bar.mean_ns or 0.0 for bar in proxy))} per {rank_and_unit(report)}, {total} points "
        f"({leaves}) [{evidence_words(tuple(evidence))}]."
    )


def _sum(shown: list[str]) -> str:
    """The sum of figures as they are shown, so that the sentence adds up with the bars."""
    return str(sum((Decimal(text) for text in shown), Decimal(0)))


def _cause(report: Report) -> str:
    grave = [finding for finding in report.findings if finding.severity in _GRAVE]
    if grave:
        return _finding(grave[0], len(grave) - 1)
    if report.culprits:
        culprit = report.culprits[0]
        return (
            f"No detector fired; of the waits, {f.time(culprit.delay_ns)} is charged to rank {culprit.culprit_rank} while it was in "
            f"{culprit.category}, by {culprit.victims} {'rank' if culprit.victims == 1 else 'ranks'} [inferred]."
        )
    return "No detector fired and no wait has a culprit: 0 findings of severity warning or above."


def _finding(finding: Finding, others: int) -> str:
    text = finding.text.rstrip(".")
    figure = (
        "" if finding.measure is None or finding.value is None else f" ({finding.measure}: {f.value(finding.value)})"
    )
    more = f"; {others} more {'finding' if others == 1 else 'findings'} below" if others else ""
    return f"{text}{figure} [{evidence_words((finding.evidence or 'evidence unknown',))}]{more}."
