"""The report's tables as headings and cells, for Markdown and HTML alike. A cell has text, and a key to sort by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pipeline.model.categories import GIVEN_BACK
from pipeline.reports import figures as f
from pipeline.reports.data import CLASS_LABELS, Report, Scope
from pipeline.reports.words import EVIDENCE, alpha_parts, class_figures, fit_figures, label_of, rank_and_unit, unit


@dataclass(frozen=True)
class Cell:
    """`key` sorts; None sorts by the text."""

    text: str
    key: float | None = None


@dataclass(frozen=True)
class Column:
    heading: str
    right: bool = False


@dataclass(frozen=True)
class Table:
    """`about` says what a row is, over what, in which unit, by which evidence."""

    name: str
    about: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


def _table(name: str, about: str, headings: str, rows: Iterable[Iterable[Cell | str]]) -> Table:
    """headings: names separated by '|'; a leading '>' means right-aligned."""
    columns = tuple(Column(part.removeprefix(">"), part.startswith(">")) for part in headings.split("|"))
    cells = tuple(tuple(c if isinstance(c, Cell) else Cell(c) for c in row) for row in rows)
    return Table(name, about, columns, cells)


def ms(ns: float | None) -> Cell:
    return Cell(f.milliseconds(ns), ns)


def duration(ns: float | None) -> Cell:
    return Cell(f.time(ns), ns)


def number(n: int | None) -> Cell:
    return Cell(f.count(n), n)


def size(n: float | None) -> Cell:
    return Cell(f.size(n), n)


def evidence(levels: Iterable[str | None]) -> str:
    return ", ".join(EVIDENCE.get(level or "", level or "?") for level in levels)


def losses(categories: Mapping[str, float], n: int = 3) -> str:
    """The largest categories beside compute, in ms."""
    top = sorted(((k, v) for k, v in categories.items() if k != "compute"), key=lambda item: (-item[1], item[0]))[:n]
    return ", ".join(f"{name} {ns / 1e6:.2f}" for name, ns in top if ns >= 1_000)


def categories(r: Report) -> Table:
    pairs = r.step_time.rank_steps if r.step_time else 1
    return _table(
        "categories",
        f"Mean per {rank_and_unit(r)} over the counted {unit(r)}s. A category with several levels of evidence names all of them; hidden: "
        "overlapped by something of higher order.",
        "category|what it is|>ms|>from, ms|>to, ms|>points|>hidden, ms|>ranks|evidence",
        (
            (
                row.category, row.text, ms(row.mean_ns), ms(row.mean_lo_ns), ms(row.mean_hi_ns), Cell(row.shown, row.share),
                ms(None if row.hidden_ns is None else row.hidden_ns / pairs), number(row.ranks),
                evidence(lv.evidence for lv in row.levels),
            )
            for row in r.categories
        ),
    )  # fmt: skip


def bars(r: Report) -> Table:
    return _table(
        "waterfall",
        f"Points of 100; time is the mean per {rank_and_unit(r)}.",
        "bar|>points|>ms|evidence",
        ((label_of(b.category), Cell(b.shown, b.points), ms(b.mean_ns), evidence(b.evidence)) for b in r.bars),
    )


def classes(r: Report) -> Table:
    return _table(
        "classes", f"Mean per {rank_and_unit(r)} over the counted {unit(r)}s.", "class|>time|>points|evidence",
        (
            (label, Cell(time, row.mean_ns), Cell(points, row.points), words)
            for row in r.classes
            for label, time, points, words in (class_figures(row),)
        ),
    )  # fmt: skip


def messages(r: Report) -> Table:
    return _table(
        "messages",
        "All messages of the report's ranks; posts and completions are measured (eBPF), joined first in, first out per queue pair. "
        "Flight: from the return of post_send to the completion.",
        "node|NIC|class|>messages|>payload|>smallest|>median size|>largest|>post median|>post p95|>flight median|>flight p95|>alone"
        "|>blocked|>in chains|>unfinished|>failed",
        (
            (
                m.node or "?", m.nic or "?", m.opcode_class or "?", number(m.n), size(m.bytes), size(m.size_min_bytes),
                size(m.size_p50_bytes), size(m.size_max_bytes), duration(m.post_p50_ns), duration(m.post_p95_ns),
                duration(m.flight_p50_ns), duration(m.flight_p95_ns), number(m.alone), number(m.blocked), number(m.chained),
                number(m.no_completion), number(m.failed),
            )
            for m in r.messages
        ),
    )  # fmt: skip


def fits(r: Report) -> Table:
    keys = ("n", "alpha_ns", "gap_ns", "beta_bytes_per_s", "n_half_bytes")
    parts = ("post_ns", "rtt0_ns", "alpha_rest_ns")
    return _table(
        "fits",
        "Inferred: fitted over measured messages, 95 % intervals in brackets. α: latency of an empty message; g: time per message of a "
        "pipelined stream; β: payload bandwidth, one way; n½ = αβ. Of α: the median post, the base round trip, and what is neither "
        "(nor the fetch that run.toml gives). A dash: the data can't identify it.",
        "path|class|>messages|>α|>of it post|>base RTT|>rest|>g|>β|>n½|status",
        (
            (
                path,
                op,
                *(Cell(shown, getattr(fit, key)) for shown, key in zip(values[:2], keys[:2], strict=True)),
                *(Cell(shown, getattr(fit, key)) for shown, key in zip(alpha_parts(fit), parts, strict=True)),
                *(Cell(shown, getattr(fit, key)) for shown, key in zip(values[2:], keys[2:], strict=True)),
                status,
            )
            for fit in r.fits
            for path, op, *values, status in (fit_figures(fit),)
        ),
    )


def waits(r: Report) -> Table:
    return _table(
        "waits",
        "Inferred from arrivals at operations with known participants, net of compute. Up to the clock error a wait is not charged.",
        f"rank|waited for|kind|operation|>waits|>in all|>longest|>in {unit(r)}|>clock error|remark",
        (
            (
                Cell(str(w.rank), w.rank), Cell(f.ABSENT if w.culprit_rank is None else str(w.culprit_rank), w.culprit_rank), w.kind,
                w.op or "unknown", number(w.n), duration(w.wait_ns), duration(w.max_ns), Cell(str(w.max_step), w.max_step),
                duration(w.clock_error_ns), "within clock error" if w.within_clock_error else "",
            )
            for w in r.waits
        ),
    )  # fmt: skip


def culprits(r: Report) -> Table:
    return _table(
        "culprits",
        "Inferred: waits beyond the clock error, charged to what the culprit did meanwhile. Hops: 0 means waited for directly.",
        f"rank|while in|>cost|>victims|>{unit(r)}s|>hops",
        (
            (
                Cell(str(c.culprit_rank), c.culprit_rank),
                c.category,
                duration(c.delay_ns),
                number(c.victims),
                number(c.steps),
                number(c.hops),
            )
            for c in r.culprits
        ),
    )


def ranks(r: Report) -> Table:
    return _table(
        "ranks", f"Measured {unit(r)} times over the counted {unit(r)}s of each rank; losses are means per {unit(r)}.",
        f"rank|node|GPU|NIC|>{unit(r)}s|>mean, ms|>median, ms|>longest, ms|largest losses, ms",
        (
            (
                Cell(str(row.rank), row.rank), row.node or "?", row.gpu or "?", row.nic or "?", number(row.steps), ms(row.mean_ns),
                ms(row.median_ns), ms(row.max_ns), losses(row.categories),
            )
            for row in r.ranks
        ),
    )  # fmt: skip


def steps(r: Report) -> Table:
    return _table(
        "steps", f"{unit(r).capitalize()} times over the ranks; losses are means over the ranks.",
        f"{unit(r)}|source|>ranks|>shortest, ms|>median, ms|>longest, ms|slowest rank|state|largest losses, ms",
        (
            (
                Cell(str(row.step), row.step), row.source, number(row.ranks), ms(row.min_ns), ms(row.median_ns), ms(row.max_ns),
                Cell(str(row.slowest_rank), row.slowest_rank),
                "partial" if not row.complete else "outlier" if row.outlier else "counted", losses(row.categories),
            )
            for row in r.steps
        ),
    )  # fmt: skip


def whatifs(r: Report) -> Table:
    return _table(
        "whatifs", "From replays of the messages with the change, never from subtracting a bar.",
        "change|>expected|>pessimistic|>optimistic|>MFU points|evidence|how",
        (
            (
                w.change, duration(w.expected_ns), duration(w.pessimistic_ns), duration(w.optimistic_ns),
                Cell(f.ABSENT if w.points is None else f"{w.points:+.2f}", w.points), evidence([w.evidence]) if w.evidence else f.ABSENT,
                "; ".join(part for part in (w.text, w.formula, w.note) if part),
            )
            for w in r.whatifs
        ),
    )  # fmt: skip


def captures(r: Report) -> Table:
    return _table(
        "captures", "Input files. Clock error: half-width of the interval that holds the true offset to the run clock.",
        "input|format|tool|node|>size|status|why|>rows|>lost events|>clock error|>probe cost|holds|lacks",
        (
            (
                c.name, c.kind or "?", " ".join(part for part in (c.tool, c.tool_version) if part) or "?", c.host or "?", size(c.bytes),
                c.status, c.reason or "", number(c.rows), number(c.lost_events), duration(c.offset_error_ns), duration(c.probe_cost_ns),
                c.present or "", c.missing or "",
            )
            for c in r.captures
        ),
    )  # fmt: skip


def clocks(r: Report) -> Table:
    return _table(
        "clocks", "Offset of each node's UTC to the run clock, with its error bound.",
        "node|reference|>offset|>± error|>drift, ppb|>constraints|status",
        (
            (
                c.node, c.reference or "?", duration(c.offset_ns), duration(c.error_ns),
                Cell(f.ABSENT if c.drift_ppb is None else f"{c.drift_ppb:.1f}", c.drift_ppb), number(c.n), c.status or "?",
            )
            for c in r.clocks
        ),
    )  # fmt: skip


def missing(r: Report) -> Table:
    return _table(
        "missing", f"Sources that the run lacks. Time: per {rank_and_unit(r)}, what stays coarse because of it.", "source|what that costs|>time",
        ((gap.source, gap.cost, duration(gap.mean_ns)) for gap in r.missing),
    )  # fmt: skip


def losses_of_events(r: Report) -> Table:
    return _table(
        "losses", "Declared losses of events; inside them nothing is claimed that the lost source would have told.",
        "node|rank|source|>windows|>covered|>events lost",
        (
            (x.node or "?", "all" if x.rank is None else str(x.rank), x.source, number(x.windows), duration(x.covered_ns), number(x.lost_events))
            for x in r.losses
        ),
    )  # fmt: skip


def shares(r: Report) -> Table:
    return _table(
        "evidence", f"Share of the counted {unit(r)}s' time that each level of evidence carries.", f"evidence|>% of wall time|>ms per {rank_and_unit(r)}",
        ((EVIDENCE.get(s.evidence, s.evidence), Cell(s.shown, s.share), ms(s.mean_ns)) for s in r.evidence),
    )  # fmt: skip


_EFFICIENCIES = (
    ("pop_parallel_efficiency", 0, "parallel efficiency"),
    ("pop_load_balance", 1, "load balance"),
    ("pop_communication_efficiency", 1, "communication"),
    ("pop_serialisation_efficiency", 2, "serialisation"),
    ("pop_transfer_efficiency", 2, "transfer"),
    *((f"pop_transfer_factor_{headline.value}", 3, CLASS_LABELS[headline]) for headline in GIVEN_BACK),
    ("pop_transfer_factor_rest", 3, "the rest of it"),
    ("pop_transfer_factors_absent", 3, "its factors"),
    ("pop_transfer_absent", 2, "serialisation, transfer"),
)
"""Facts that are efficiencies, each the product of those one level below it: name, level, label."""


def efficiencies(r: Report) -> Table | None:
    """None for a part of the run, and where one rank was captured: there is nobody to be balanced with."""
    facts = {fact.name: fact for fact in r.facts}
    if (
        r.scope != Scope(None, None)
        or r.step_time is None
        or r.step_time.ranks < 2
        or "pop_parallel_efficiency" not in facts
    ):
        return None
    found = [(facts[name], level, label) for name, level, label in _EFFICIENCIES if name in facts]
    return _table(
        "efficiencies",
        "POP efficiencies of the whole run, inferred: each is the product of those indented below it. Transfer: the network's parts "
        "are given back one after the other to a replay on a network that takes no time.",
        "efficiency|>%|what it is",
        (
            (
                f"{level * '· '}{label}",
                Cell(f.ABSENT) if fact.value == "absent" else Cell(f"{100 * float(fact.value or 0):.2f}", float(fact.value or 0)),
                fact.text or "",
            )
            for fact, level, label in found
        ),
    )  # fmt: skip


_SAID_ELSEWHERE = ("missing_", "share_")


def facts(r: Report) -> Table:
    elsewhere = (
        _SAID_ELSEWHERE if efficiencies(r) is None else (*_SAID_ELSEWHERE, *(name for name, _, _ in _EFFICIENCIES))
    )
    rows = [x for x in r.facts if not x.name.startswith(elsewhere)]
    about = "How this run was computed, and what was found about it as a whole."
    return _table("facts", about, "name|value|meaning", ((x.name, x.value or f.ABSENT, x.text or "") for x in rows))
