"""The report as Markdown, for a ticket: the same content, text of traces made harmless."""

from __future__ import annotations

import re

from pipeline.reports import figures as f
from pipeline.reports import tables
from pipeline.reports.data import Report
from pipeline.reports.words import EVIDENCE, scope_words, step_time_lines, unit

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!])")
_ROWS = 30


def plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def table(content: tables.Table, *, rows: int = _ROWS) -> list[str]:
    """A Markdown table; what is beyond `rows` is counted below it."""
    head = "| " + " | ".join(plain(c.heading) for c in content.columns) + " |"
    rule = "| " + " | ".join("---:" if c.right else "---" for c in content.columns) + " |"
    lines = [head, rule]
    lines += ["| " + " | ".join(plain(cell.text) for cell in row) + " |" for row in content.rows[:rows]]
    if len(content.rows) > rows:
        lines += ["", f"{len(content.rows) - rows} more rows are in the JSON and HTML reports."]
    return [*lines, ""]


def render(report: Report) -> str:
    r = report
    out = [f"# mfuloss report: {plain(r.run)}{scope_words(r.scope)}", ""]
    if r.note:
        out += [plain(r.note), ""]
    out += [f"- {plain(line)}" for line in step_time_lines(r)] + [""]
    if r.happened:
        out += ["## What happened", "", *(f"{i}. {plain(s)}" for i, s in enumerate(r.happened, 1)), ""]
    if r.bars:
        out += ["## Waterfall", "", plain(tables.bars(r).about), "", *table(tables.bars(r))]
    if r.categories:
        out += _section("Categories", tables.categories(r))
    out += _section("Communication: the four classes", tables.classes(r))
    if (efficiencies := tables.efficiencies(r)) is not None:
        out += _section("Efficiencies", efficiencies)
    if r.messages:
        out += _section("Messages", tables.messages(r))
    else:
        out += ["## Messages", "", f"None: {plain(r.absent.get('messages', 'not known'))}.", ""]
    if r.fits:
        out += _section("Fits", tables.fits(r))
    if r.waits:
        out += _section("Waits", tables.waits(r))
        if r.culprits:
            out += _section("Culprits", tables.culprits(r))
    else:
        out += ["## Waits", "", f"None: {plain(r.absent.get('waits', 'not known'))}.", ""]
    out += ["## Findings", ""]
    for finding in r.findings:
        out.append(f"- **{plain(finding.severity)}, {plain(finding.code)}**: {plain(finding.text)}")
        if finding.measure and finding.value is not None:
            limit = "" if finding.threshold is None else f", threshold {f.value(finding.threshold)}"
            out.append(
                f"  - {plain(finding.measure)}: {f.value(finding.value)}{limit}; {plain(EVIDENCE.get(finding.evidence or '', '?'))}"
            )
        out += [
            f"  - {plain(text)}"
            for text in (finding.confounders, f"next: {finding.next}" if finding.next else None)
            if text
        ]
    if not r.findings:
        out.append(f"None: {plain(r.absent.get('findings', 'none'))}.")
    out += ["", "## What would help", ""]
    if r.whatifs:
        out += [*table(tables.whatifs(r))]
    else:
        out += [f"Not known: {plain(r.absent.get('whatifs', 'no change applies'))}.", ""]
    if r.ranks:
        out += _section("Ranks", tables.ranks(r))
    if r.steps:
        out += _section(f"{unit(r)}s".capitalize(), tables.steps(r))
    out += _section("Evidence", tables.shares(r))
    if r.missing:
        out += _section("What was missing", tables.missing(r))
    out += _section("Captures", tables.captures(r))
    if r.losses:
        out += _section("Lost events", tables.losses_of_events(r))
    if r.clocks:
        out += _section("Clocks", tables.clocks(r))
    if r.facts:
        out += _section("Facts", tables.facts(r))
    return "\n".join(out).rstrip() + "\n"


def _section(title: str, content: tables.Table) -> list[str]:
    return [f"## {title}", "", plain(content.about), "", *table(content)]
