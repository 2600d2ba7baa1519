"""What a call did, and how it is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pipeline.model.errors import ExitCode, GateFailed
from pipeline.reports import history, nights


@dataclass
class Outcome:
    """What a call did. fresh: runs whose verdict was not reported before; failed: (run or folder, reason)."""

    read: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    partial: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    series: list[history.Series] = field(default_factory=list)
    written: list[Path] = field(default_factory=list)

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.PARTIAL if self.failed or self.partial else ExitCode.DONE

    def verdict_of(self, run: str) -> tuple[history.Series, history.Verdict] | None:
        return next(((s, v) for s in self.series for v in s.verdicts if v.run == run), None)


def gate(outcome: Outcome, points: float) -> None:
    """Raise GateFailed if a run that is told for the first time lost more than `points`, beyond the noise."""
    failed = [
        (verdict, series)
        for series in outcome.series
        for verdict in series.verdicts
        if verdict.run in outcome.fresh and verdict.status == "worse" and (verdict.lost or 0.0) > points
    ]
    if failed:
        worst, series = max(failed, key=lambda each: (each[0].lost or 0.0, each[0].run))
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        raise GateFailed(f"{nights.sentence(series, worst)}; the gate allows {points:g}{more}", where=worst.run)


def lines(outcome: Outcome) -> list[str]:
    """What a call did, for a terminal or a mail: what got worse first."""
    told = [found for run in outcome.fresh if (found := outcome.verdict_of(run)) is not None]
    loud = [each for each in told if each[1].status in ("worse", "shifted", "better", "unknown")]
    order = {"worse": 0, "unknown": 1, "shifted": 2, "better": 3}
    loud.sort(key=lambda each: (order[each[1].status], -(each[1].lost or 0.0), each[1].run))
    result = [f"{verdict.run}: {nights.sentence(series, verdict)}" for series, verdict in loud]
    result += [
        f"{verdict.run}: new series of {s.job}: {s.before}"
        for s, verdict in told
        if s.before and verdict is s.verdicts[0]
    ]
    newest = [(s, s.verdicts[-1]) for s in outcome.series if s.verdicts and s.verdicts[-1].run in outcome.fresh]
    result += [f"{v.run}: {nights.sentence(s, v)}" for s, v in newest if nights.still_worse(v)]
    quiet = {status: sum(v.status == status for _, v in told) for status in ("steady", "learning")}
    if not told and not outcome.read:
        result.append(f"nothing new: {len(outcome.unchanged)} runs unchanged")
    else:
        parts = [f"{len(outcome.read)} read", f"{len(outcome.unchanged)} unchanged"]
        parts += [f"{n} {status}" for status, n in quiet.items() if n]
        result.append(", ".join(parts))
    if outcome.waiting:
        result.append(f"left for later, still being written: {', '.join(outcome.waiting)}")
    return result


def counts(outcome: Outcome) -> dict[str, int]:
    return {
        "read": len(outcome.read),
        "unchanged": len(outcome.unchanged),
        "waiting": len(outcome.waiting),
        "failed": len(outcome.failed),
    }
