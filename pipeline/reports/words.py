"""Phrases that the formats share: labels of categories, headline lines, rows of small tables."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.reports import figures as f
from pipeline.reports.data import ClassRow, Fit, Report, Scope, WaitRow

LABELS = {
    "mfu": "MFU",
    "compute_loss": "compute below peak",
    "compute": "compute",
    "wait_straggler": "waiting for a late rank",
    "wait_pipeline": "waiting for the pipeline",
    "rdma_transfer": "RDMA transfer",
    "ctl_cpu": "CPU proxy",
    "ctl_schedule": "proxy not scheduled",
    "ctl_loop": "proxy loop",
    "ctl_post": "WQE + doorbell",
    "ctl_wqe": "WQE",
    "ctl_doorbell": "doorbell",
    "ctl_fetch": "NIC fetch",
    "ctl_notify": "GPU to proxy",
    "blocking_rtt": "blocking RTT",
    "net_latency": "network latency",
    "net_excess": "network excess",
    "wait_credit": "receiver's credit",
    "wait_sender": "waiting for a sender",
    "trace_gap": "gap in the trace",
    "nvlink_transfer": "transfer inside a node",
    "comm_unattributed": "communication, rest",
    "memcpy": "exposed copy",
    "gpu_dependency": "GPU dependency",
    "host_sync": "host: synchronising",
    "host_data": "host: loading data",
    "host_other": "host: blocked",
    "host_launch": "host: launching",
    "idle_other": "idle, rest",
}
"""Short names for bars; the names of the categories themselves stand in the tables."""

EVIDENCE = {
    "measured_nsys": "measured (nsys)",
    "measured_ebpf": "measured (eBPF)",
    "measured_profiler": "measured (profiler)",
    "inferred": "inferred",
    "modelled": "modelled",
    "assumed": "assumed",
}


def label_of(category: str) -> str:
    return LABELS.get(category, category)


def scope_words(scope: Scope) -> str:
    parts = [f"{name} {value}" for name, value in (("rank", scope.rank), ("step", scope.step)) if value is not None]
    return ", " + ", ".join(parts) if parts else ""


def step_name(report: Report) -> str:
    """Step time, or what it is called in decoding; without steps the length of a window."""
    if unit(report) == "window":
        return "window"
    return "TPOT" if report.step_time is not None and report.step_time.kind == "decode" else "step time"


def unit(report: Report) -> str:
    """What a row of `steps` is: over a run in which no steps were found it is a window, of which nothing is claimed."""
    return "window" if report.step_time is not None and report.step_time.sources == "window" else "step"


def rank_and_unit(report: Report) -> str:
    """What means are taken over."""
    return f"rank and {unit(report)}"


def path_of(node: str | None, nic: str | None) -> str:
    """node/nic, as far as they are known."""
    return "/".join(part for part in (node, nic) if part) or "?"


def plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


NO_STEPS = "no steps were found: no range names them, and kernels repeat with no period that could be trusted"


def windows(report: Report) -> str:
    """The windows that stand in for steps."""
    t = report.step_time
    assert t is not None
    return f"{plural(t.rank_steps, 'window')} of {f.time(t.median_ns)} ({plural(t.ranks, 'rank')})"


def step_time_lines(report: Report) -> list[str]:
    """Headline in sentences: step time, where steps come from, MFU or why there is none."""
    t = report.step_time
    if t is None:
        return [f"no step time: {report.absent.get('steps', 'no step')}"]
    name = step_name(report)
    one = unit(report)
    if one == "window":
        lines = [f"{NO_STEPS}; the run is told in {windows(report)}"]
    else:
        spread = f"{f.time(t.min_ns)} to {f.time(t.max_ns)}"
        counted = f"{t.rank_steps} rank-steps: {plural(t.ranks, 'rank')}, {plural(t.steps, 'step')} [{t.basis}]"
        lines = [f"{name}: median {f.time(t.median_ns)}, mean {f.time(t.mean_ns)} ({spread}) over {counted}"]
    left_out = [
        f"{n} {what}"
        for n, what in ((t.partial_steps, "partial"), (t.outlier_steps, "outlying"))
        if n and t.rank_steps < t.all_steps
    ]
    if left_out:
        lines.append(f"left out of {t.all_steps} rank-{one}s: {', '.join(left_out)}")
    if t.sources != "nvtx" and one == "step":
        guess = "no confidence" if t.confidence is None else f"confidence {t.confidence:.2f}"
        if "window" in t.sources:
            lines.append("of some ranks no steps were found, and their windows are counted as steps here")
        lines.append(f"steps are {t.sources} ({guess}): no step range said where they are")
    if report.mfu_points is not None:
        evidence = EVIDENCE.get(report.mfu_evidence or "", report.mfu_evidence)
        lines.append(f"MFU: {report.mfu_points:.2f} % ({evidence}){_hfu(report)}")
        lines += [f"peak: {fact.text}" for fact in report.facts if fact.name.startswith("peak_source_")]
    else:
        lines.append(f"MFU: not known: {report.mfu_absent}")
    return lines


def _hfu(report: Report) -> str:
    """HFU beside MFU, in a report of the whole run where recompute is known."""
    found = [fact.value for fact in report.facts if fact.name == "hfu_points"]
    if not found or found[0] is None or report.scope != Scope(None, None):
        return ""
    return f"; HFU, recompute counted: {float(found[0]):.2f} %"


def class_figures(row: ClassRow) -> tuple[str, str, str, str]:
    """label, time, points, evidence or the reason of absence."""
    words = row.absent or ", ".join(EVIDENCE.get(e, e) for e in row.evidence)
    if not words and row.mean_ns is not None:
        words = "none seen"
    if row.beside and row.beside_mean_ns is not None:
        words += f"; beside it net_excess {f.time(row.beside_mean_ns)}"
    return row.label, f.time(row.mean_ns), row.shown or f.ABSENT, words


def fit_figures(fit: Fit) -> tuple[str, str, str, str, str, str, str, str]:
    """path, op, n, α, g, β, n½ with 95 % intervals, status."""

    def interval(value: str, lo: float | None, hi: float | None, show: Callable[[float], str]) -> str:
        if lo is None or hi is None or value == f.ABSENT:
            return value
        unit_of_value = " " + value.rpartition(" ")[2]
        ends = (show(end).removesuffix(unit_of_value) for end in (lo, hi))
        return f"{value} [{', '.join(ends)}]"

    path = "/".join(part for part in (fit.node, fit.nic, fit.peer_class if fit.peer_class != "all" else None) if part)
    source = {"run_toml": ", β given"}.get(fit.beta_source or "", "")
    return (
        path or "all",
        fit.op or "all",
        f.count(fit.n),
        interval(f.time(fit.alpha_ns), fit.alpha_lo, fit.alpha_hi, f.time),
        f.time(fit.gap_ns),
        interval(f.bandwidth(fit.beta_bytes_per_s), fit.beta_lo, fit.beta_hi, f.bandwidth),
        f.size(fit.n_half_bytes),
        fit.status + source,
    )


def alpha_parts(fit: Fit) -> tuple[str, str, str]:
    """Of α: median post, base round trip, and what is neither (nor the fetch of run.toml)."""
    return f.time(fit.post_ns), f.time(fit.rtt0_ns), f.time(fit.alpha_rest_ns)


def wait_words(w: WaitRow) -> tuple[str, ...]:
    """rank, culprit, kind, operation, n, total, longest, its step, clock error, remark."""
    return (
        str(w.rank),
        f.ABSENT if w.culprit_rank is None else f"rank {w.culprit_rank}",
        w.kind,
        w.op or "unknown",
        f.count(w.n),
        f.time(w.wait_ns),
        f.time(w.max_ns),
        str(w.max_step),
        f.time(w.clock_error_ns),
        "within error" if w.within_clock_error else "",
    )
