"""The report on a terminal: rich, at most 100 columns, plain when it is not a terminal."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable

from pipeline.reports import figures as f
from pipeline.reports.data import Report
from pipeline.reports.tables import efficiencies, losses
from pipeline.reports.words import (
    EVIDENCE,
    alpha_parts,
    class_figures,
    fit_figures,
    label_of,
    path_of,
    rank_and_unit,
    scope_words,
    step_time_lines,
    unit,
    wait_words,
)

WIDTH = 100
"""Columns at most, on any terminal."""
_EVIDENCE_FILL = {
    "measured_nsys": "█",
    "measured_ebpf": "█",
    "measured_profiler": "█",
    "inferred": "▓",
    "modelled": "▒",
    "assumed": "░",
}
_BAR = 34
_TOP = 12


def render(report: Report, *, color: bool = False, width: int = WIDTH) -> str:
    """The report as text. color: with terminal codes. width: columns, `WIDTH` at most."""
    writer = _Writer(report, color=color, width=width)
    writer.write()
    return writer.text()


class Screen:
    """Lines and tables of at most `WIDTH` columns, collected as text."""

    def __init__(self, *, color: bool = False, width: int = WIDTH) -> None:
        from rich.console import Console

        self._out = io.StringIO()
        self.console = Console(
            file=self._out,
            width=min(width, WIDTH),
            force_terminal=color,
            color_system="standard" if color else None,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def text(self) -> str:
        """What was written, without spaces at the ends of lines."""
        return "\n".join(line.rstrip() for line in self._out.getvalue().splitlines()) + "\n"

    def title(self, text: str) -> None:
        from rich.text import Text

        self.console.print()
        self.console.print(Text(text, style="bold"))

    def line(self, text: str, style: str = "", *, hang: int = 0) -> None:
        """A line, wrapped; what is wrapped stands `hang` columns in."""
        from rich.text import Text

        lead = " " * (len(text) - len(text.lstrip()))
        wrapped = textwrap.wrap(
            text.strip(), self.console.width, initial_indent=lead, subsequent_indent=lead + " " * hang
        )
        self.console.print(Text("\n".join(wrapped), style=style))

    def bullet(self, text: str) -> None:
        self.line(f"• {text}", hang=2)

    def table(self, columns: Iterable[tuple[str, str]], rows: Iterable[Iterable[str]]) -> None:
        """columns: (heading, 'l', 'r' or 'w'): left, right, or left and wrapped."""
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
        for heading, kind in columns:
            table.add_column(
                heading,
                justify="right" if kind == "r" else "left",
                no_wrap=kind != "w",
                overflow="fold" if kind == "w" else "ellipsis",
            )
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        self.console.print(table)


class _Writer(Screen):
    def __init__(self, report: Report, *, color: bool, width: int) -> None:
        super().__init__(color=color, width=width)
        self.report = report

    def write(self) -> None:
        self.head()
        self.happened()
        self.waterfall()
        self.categories()
        self.classes()
        self.efficiencies()
        self.messages()
        self.waits()
        self.findings()
        self.whatifs()
        self.views()
        self.coverage()

    def head(self) -> None:
        from rich.text import Text

        r = self.report
        self.console.print(Text(f"mfuloss report  {r.run}{scope_words(r.scope)}", style="bold"))
        if r.note:
            self.line(r.note)
        for line in step_time_lines(r):
            self.line(line, hang=2)

    def happened(self) -> None:
        if self.report.happened:
            self.title("What happened")
            for sentence in self.report.happened:
                self.bullet(sentence)

    def waterfall(self) -> None:
        bars = self.report.bars
        if not bars:
            return
        from rich.text import Text

        self.title("Waterfall, points of 100" + ("" if self.report.mfu_points is not None else " (share of wall time)"))
        done = 0.0
        longest = max(len(label_of(bar.category)) for bar in bars)
        for bar in bars:
            start = round(done * _BAR / 100)
            done += max(bar.points, 0.0)
            end = round(done * _BAR / 100)
            fill = _EVIDENCE_FILL.get(bar.evidence[0] if bar.evidence else "", "█")
            drawn = " " * start + (fill * (end - start) if end > start else "▏")
            text = Text(f"{label_of(bar.category):<{longest}}  {bar.shown:>6}  ")
            text.append(f"{drawn:<{_BAR + 1}}", style=_COLORS.get(bar.group, ""))
            text.append(f" {f.milliseconds(bar.mean_ns):>11} ms  ")
            text.append(", ".join(EVIDENCE.get(e, e) for e in bar.evidence), style="dim")
            text.truncate(self.console.width)
            self.console.print(text)
        self.line(f"{'':<{longest}}  {'100.00':>6}  █ measured  ▓ inferred  ▒ modelled  ░ assumed", style="dim")

    def categories(self) -> None:
        rows = self.report.categories
        if not rows:
            return
        self.title(f"Categories, mean per {rank_and_unit(self.report)}")
        self.table(
            [("category", "l"), ("ms", "r"), ("lo to hi, ms", "r"), ("%", "r"), ("hidden, ms", "r"), ("evidence", "w")],
            [
                (
                    row.category,
                    f.milliseconds(row.mean_ns),
                    "exact"
                    if row.mean_lo_ns == row.mean_hi_ns
                    else f"{f.milliseconds(row.mean_lo_ns)} to {f.milliseconds(row.mean_hi_ns)}",
                    row.shown,
                    f.milliseconds(
                        None
                        if row.hidden_ns is None or self.report.step_time is None
                        else row.hidden_ns / self.report.step_time.rank_steps
                    ),
                    ", ".join(level.evidence for level in row.levels if level.attributed_ns or len(row.levels) == 1),
                )
                for row in rows
            ],
        )

    def classes(self) -> None:
        self.title(f"Communication: the four classes, mean per {rank_and_unit(self.report)}")
        self.table(
            [("class", "l"), ("time", "r"), ("points", "r"), ("evidence", "w")],
            [class_figures(row) for row in self.report.classes],
        )

    def efficiencies(self) -> None:
        content = efficiencies(self.report)
        if content is None:
            return
        self.title("Efficiencies (POP), each the product of those below it")
        self.table(
            [("efficiency", "l"), ("%", "r"), ("what it is", "w")],
            [[cell.text for cell in row] for row in content.rows],
        )

    def messages(self) -> None:
        r = self.report
        self.title("Messages (medians)")
        if not r.messages:
            self.line(f"none: {r.absent.get('messages', 'not known')}")
            return
        self.table(
            [("nic", "l"), ("op", "l"), ("n", "r"), ("payload", "r"), ("size", "r"), ("post", "r"), ("flight", "r"),
             ("flight p95", "r"), ("blocked", "r"), ("open", "r")],
            [
                (
                    path_of(m.node, m.nic), m.opcode_class or "?", f.count(m.n), f.size(m.bytes), f.size(m.size_p50_bytes),
                    f.time(m.post_p50_ns), f.time(m.flight_p50_ns), f.time(m.flight_p95_ns), f.count(m.blocked),
                    f.count(m.no_completion),
                )
                for m in r.messages
            ],
        )  # fmt: skip
        if r.fits:
            self.line("")
            self.table(
                [
                    ("fit", "l"),
                    ("op", "l"),
                    ("n", "r"),
                    ("α", "r"),
                    ("g", "r"),
                    ("β one way", "r"),
                    ("n½", "r"),
                    ("status", "w"),
                ],
                [fit_figures(fit) for fit in r.fits],
            )
            apart = [fit for fit in r.fits if fit.alpha_rest_ns is not None]
            if apart:
                self.line("")
                self.table(
                    [("of α", "l"), ("op", "l"), ("post", "r"), ("base round trip", "r"), ("rest", "r")],
                    [(*fit_figures(fit)[:2], *alpha_parts(fit)) for fit in apart],
                )

    def waits(self) -> None:
        r = self.report
        self.title("Waits and culprits")
        if not r.waits:
            self.line(f"none: {r.absent.get('waits', 'not known')}")
            return
        self.table(
            [("rank", "r"), ("waited for", "r"), ("kind", "l"), ("operation", "l"), ("n", "r"), ("total", "r"), ("longest", "r"), (f"in {unit(r)}", "r"),
             ("clock error", "r"), ("", "l")],
            [wait_words(w) for w in r.waits[:_TOP]],
        )  # fmt: skip
        self.more(len(r.waits), "waits")
        if r.culprits:
            self.line("")
            self.table(
                [("charged to rank", "r"), ("while in", "l"), ("cost", "r"), ("victims", "r"), (f"{unit(r)}s", "r")],
                [
                    (str(c.culprit_rank), c.category, f.time(c.delay_ns), f.count(c.victims), f.count(c.steps))
                    for c in r.culprits[:_TOP]
                ],
            )
            self.more(len(r.culprits), "charges")

    def more(self, n: int, what: str) -> None:
        if n > _TOP:
            self.line(f"... and {n - _TOP} more {what} (--format json or html has them)", style="dim")

    def findings(self) -> None:
        r = self.report
        self.title("Findings")
        if not r.findings:
            self.line(r.absent.get("findings", "none"))
        for finding in r.findings:
            self.line(f"[{finding.severity}] {finding.code}: {finding.text}", hang=2)
            details = [
                f"{finding.measure}: {f.value(finding.value)} (threshold {f.value(finding.threshold)})"
                if finding.measure and finding.value is not None and finding.threshold is not None
                else None,
                EVIDENCE.get(finding.evidence or "", finding.evidence),
                finding.confounders,
                f"next: {finding.next}" if finding.next else None,
            ]
            for detail in details:
                if detail:
                    self.line(f"    {detail}")

    def whatifs(self) -> None:
        r = self.report
        self.title("What would help")
        if not r.whatifs:
            self.line(f"not known: {r.absent.get('whatifs', 'no change applies')}")
            return
        for note in dict.fromkeys(w.note for w in r.whatifs if w.note):
            self.line(note)
        self.table(
            [("change", "l"), ("expected", "r"), ("from", "r"), ("to", "r"), ("points", "r"), ("what it is", "w")],
            [
                (
                    w.change, f.time(w.expected_ns), f.time(w.pessimistic_ns), f.time(w.optimistic_ns),
                    f.ABSENT if w.points is None else f"{w.points:+.2f}", w.text or w.note or "",
                )
                for w in r.whatifs
            ],
        )  # fmt: skip

    def views(self) -> None:
        r = self.report
        if r.ranks:
            self.title("Ranks")
            self.table(
                [("rank", "r"), ("node", "l"), (f"{unit(r)}s", "r"), ("mean, ms", "r"), ("median, ms", "r"), ("longest, ms", "r"),
                 ("largest losses, ms", "w")],
                [
                    (
                        str(row.rank), row.node or "?", f.count(row.steps), f.milliseconds(row.mean_ns), f.milliseconds(row.median_ns),
                        f.milliseconds(row.max_ns), losses(row.categories),
                    )
                    for row in r.ranks[:64]
                ],
            )  # fmt: skip
        if r.steps:
            self.title(f"{unit(r)}s".capitalize())
            self.table(
                [(unit(r), "r"), ("ranks", "r"), ("median, ms", "r"), ("longest, ms", "r"), ("slowest", "r"), ("", "l"),
                 ("largest losses, ms", "w")],
                [
                    (
                        str(row.step), f.count(row.ranks), f.milliseconds(row.median_ns), f.milliseconds(row.max_ns),
                        f"rank {row.slowest_rank}", _flags(row.complete, row.outlier), losses(row.categories),
                    )
                    for row in r.steps[:64]
                ],
            )  # fmt: skip
            if len(r.steps) > 64:
                self.line(f"... and {len(r.steps) - 64} more {unit(r)}s (--format json or html has them)", style="dim")

    def coverage(self) -> None:
        r = self.report
        self.title("Evidence")
        if not r.evidence:
            self.line("no attributed time")
        else:
            self.line(", ".join(f"{share.shown} % {share.evidence}" for share in r.evidence))
        if r.missing:
            self.title("What was missing, and what that costs")
            for gap in r.missing:
                cost = "" if gap.mean_ns is None else f" ({f.time(gap.mean_ns)} per {rank_and_unit(r)} stay coarse)"
                self.bullet(f"{gap.source}: {gap.cost}{cost}")
        self.title("Captures")
        self.table(
            [
                ("input", "w"),
                ("kind", "l"),
                ("status", "l"),
                ("rows", "r"),
                ("lost", "r"),
                ("clock error", "r"),
                ("why", "w"),
            ],
            [
                (
                    c.name,
                    c.kind or "?",
                    c.status,
                    f.count(c.rows),
                    f.count(c.lost_events),
                    f.time(c.offset_error_ns),
                    c.reason or "",
                )
                for c in r.captures
            ],
        )
        for loss in r.losses:
            whose = f"{loss.node or '?'}" + ("" if loss.rank is None else f" rank {loss.rank}")
            self.line(
                f"lost events: {whose}, {loss.source}: {f.count(loss.lost_events)} in {loss.windows} windows of {f.time(loss.covered_ns)}"
            )
        if len(r.clocks) > 1:
            self.title("Clocks")
            self.table(
                [("node", "l"), ("offset", "r"), ("± error", "r"), ("drift, ppb", "r"), ("status", "l")],
                [
                    (
                        c.node,
                        f.time(c.offset_ns),
                        f.time(c.error_ns),
                        f.ABSENT if c.drift_ppb is None else f"{c.drift_ppb:.1f}",
                        c.status or "?",
                    )
                    for c in r.clocks
                ],
            )


_COLORS = {
    "mfu": "green",
    "compute": "cyan",
    "wait": "magenta",
    "network": "blue",
    "comm": "blue",
    "gap": "red",
    "copy": "yellow",
    "host": "yellow",
    "idle": "white",
}


def _flags(complete: bool, outlier: bool) -> str:
    return "partial" if not complete else "outlier" if outlier else ""
