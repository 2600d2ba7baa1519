"""A run as one plain structure, `mfuloss.report/1`: what every format draws.

A figure is measured or derived from measured ones; what is not known is None with the reason beside it, never zero.
Times are ns, sizes bytes, bandwidths bytes/s one way; points are MFU points, 100 in all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pipeline.model.categories import Headline

SCHEMA = "mfuloss.report/1"
CLASS_LABELS = {
    Headline.CPU_DOORBELL: "CPU doorbell",
    Headline.CONTROL_PLANE_ALPHA: "control-plane α",
    Headline.RDMA_TRANSFER: "RDMA transfer",
    Headline.BLOCKING_RTT: "blocking RTT",
}


@dataclass(frozen=True)
class Scope:
    """What was asked for; None: all."""

    rank: int | None
    step: int | None


@dataclass(frozen=True)
class StepTime:
    """Step time over the counted steps (TPOT for decode). rank_steps: counted (rank, step) pairs."""

    kind: str
    basis: str
    rank_steps: int
    ranks: int
    steps: int
    all_steps: int
    partial_steps: int
    outlier_steps: int
    wall_ns: int
    mean_ns: float
    median_ns: int
    min_ns: int
    max_ns: int
    sources: str
    confidence: float | None


@dataclass(frozen=True)
class Level:
    """The part of a figure that one level of evidence carries. ns in all over the counted steps."""

    evidence: str
    attributed_ns: int
    lo_ns: int
    hi_ns: int


@dataclass(frozen=True)
class Bar:
    """A bar of the waterfall: points of 100. `shown` are its points as text; shown bars add up to 100."""

    category: str
    text: str
    group: str
    points: float
    shown: str
    mean_ns: float | None
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class CategoryRow:
    """A category over the counted steps. mean_*: per rank and step, ns. share: of wall time, 0 to 1."""

    category: str
    text: str
    group: str
    headline: str | None
    attributed_ns: int
    mean_ns: float
    mean_lo_ns: float
    mean_hi_ns: float
    exclusive_ns: int | None
    inclusive_ns: int | None
    hidden_ns: int | None
    share: float
    shown: str
    """Points as the bars show them."""
    rank_steps: int
    ranks: int
    levels: tuple[Level, ...]


@dataclass(frozen=True)
class ClassRow:
    """One of the four headline classes. mean_ns: per rank and step. absent: why there is no figure."""

    key: str
    label: str
    mean_ns: float | None
    points: float | None
    shown: str | None
    evidence: tuple[str, ...]
    categories: tuple[str, ...]
    absent: str | None
    beside: str | None
    beside_mean_ns: float | None


@dataclass(frozen=True)
class RankRow:
    rank: int
    node: str | None
    gpu: str | None
    nic: str | None
    steps: int
    mean_ns: float | None
    median_ns: int | None
    max_ns: int | None
    categories: Mapping[str, float]


@dataclass(frozen=True)
class StepRow:
    step: int
    ranks: int
    complete: bool
    outlier: bool
    counted: bool
    source: str
    median_ns: int
    min_ns: int
    max_ns: int
    slowest_rank: int
    categories: Mapping[str, float]


@dataclass(frozen=True)
class Cells:
    """Time by rank and step: matrices [rank][step] in ns; None where the rank lacks the step.

    Where a run has more than `MAX_CELLS` (rank, step) pairs, `steps` are the first of equal groups of
    `steps_per_column` steps and a cell is the largest in its group.
    """

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    steps_per_column: int
    wall_ns: tuple[tuple[int | None, ...], ...]
    categories: Mapping[str, tuple[tuple[int | None, ...], ...]]


@dataclass(frozen=True)
class MessageRow:
    node: str | None
    nic: str | None
    opcode_class: str | None
    n: int
    bytes: int | None
    size_min_bytes: int | None
    size_p50_bytes: int | None
    size_max_bytes: int | None
    post_p50_ns: int | None
    post_p95_ns: int | None
    flight_p50_ns: int | None
    flight_p95_ns: int | None
    alone: int
    blocked: int
    chained: int
    no_completion: int
    failed: int


@dataclass(frozen=True)
class Fit:
    """α, g and β of a path with 95 % intervals; what the data can't identify is None."""

    node: str | None
    nic: str | None
    peer_class: str | None
    op: str | None
    initiator: str | None
    n: int | None
    status: str
    alpha_ns: float | None
    alpha_lo: float | None
    alpha_hi: float | None
    gap_ns: float | None
    beta_bytes_per_s: float | None
    beta_lo: float | None
    beta_hi: float | None
    n_half_bytes: float | None
    rtt0_ns: int | None
    beta_source: str | None
    post_ns: int | None = None
    """Median time in post_send on this path."""
    alpha_rest_ns: float | None = None
    """What of α is neither the post nor the fetch of run.toml nor the base round trip."""


@dataclass(frozen=True)
class SizeBin:
    node: str | None
    nic: str | None
    opcode_class: str | None
    alone: bool
    n: int
    bytes: int
    flight_p25_ns: int
    flight_p50_ns: int
    flight_p75_ns: int


@dataclass(frozen=True)
class WaitRow:
    rank: int
    culprit_rank: int | None
    kind: str
    op: str | None
    within_clock_error: bool
    n: int
    wait_ns: int
    max_ns: int
    max_step: int
    clock_error_ns: int | None


@dataclass(frozen=True)
class Culprit:
    culprit_rank: int
    category: str
    delay_ns: int
    victims: int
    steps: int
    hops: int


@dataclass(frozen=True)
class Finding:
    code: str
    severity: str
    rank: int | None
    node: str | None
    nic: str | None
    step: int | None
    measure: str | None
    value: float | None
    threshold: float | None
    evidence: str | None
    text: str
    confounders: str | None
    next: str | None


@dataclass(frozen=True)
class WhatIf:
    """A change and the step time that a replay gives it: bounds always, expected only where the replay is good.

    points: MFU points gained. base_ns: today's step time by the same count; floor_ns: what no change can go below.
    replay_error: relative error of the replay of the unchanged trace.
    """

    change: str
    text: str
    pessimistic_ns: float | None
    expected_ns: float | None
    optimistic_ns: float | None
    points: float | None
    formula: str | None
    evidence: str | None
    note: str | None
    base_ns: float | None
    floor_ns: float | None
    replay_error: float | None


@dataclass(frozen=True)
class CaptureRow:
    name: str
    kind: str | None
    tool: str | None
    tool_version: str | None
    host: str | None
    bytes: int | None
    status: str
    reason: str | None
    rows: int | None
    lost_events: int | None
    clock: str | None
    offset_ns: int | None
    offset_error_ns: int | None
    probe_cost_ns: int | None
    probe_exit_ns: int | None
    probe_call_ns: int | None
    present: str | None
    missing: str | None


@dataclass(frozen=True)
class Missing:
    """A source that the run lacks, and what that costs. ns: time per rank and step that stays coarse; None: unknown."""

    source: str
    cost: str
    mean_ns: float | None


@dataclass(frozen=True)
class Loss:
    node: str | None
    rank: int | None
    source: str
    windows: int
    covered_ns: int | None
    lost_events: int | None


@dataclass(frozen=True)
class ClockRow:
    node: str
    reference: str | None
    offset_ns: int | None
    error_ns: int | None
    drift_ppb: float | None
    n: int | None
    status: str | None


@dataclass(frozen=True)
class Fact:
    name: str
    value: str | None
    text: str | None


@dataclass(frozen=True)
class Share:
    evidence: str
    mean_ns: float
    share: float
    shown: str


@dataclass(frozen=True)
class TimelineItem:
    lane: str
    row_name: str
    kind: str
    label: str | None
    n: int
    start_ns: int
    end_ns: int
    busy_ns: int


@dataclass(frozen=True)
class Timeline:
    """The step to look at; items lie in [start_ns, end_ns) on the run clock."""

    rank: int
    step: int
    step_start_ns: int
    step_end_ns: int
    start_ns: int
    end_ns: int
    exposed_ns: int
    items: tuple[TimelineItem, ...]


@dataclass(frozen=True)
class Report:
    """A run, or a rank or step of it. `absent` names what a section lacks and why."""

    schema: str
    run: str
    note: str | None
    scope: Scope
    step_time: StepTime | None
    mfu_points: float | None
    mfu_evidence: str | None
    mfu_absent: str | None
    classes: tuple[ClassRow, ...]
    bars: tuple[Bar, ...]
    categories: tuple[CategoryRow, ...]
    ranks: tuple[RankRow, ...]
    steps: tuple[StepRow, ...]
    cells: Cells
    messages: tuple[MessageRow, ...]
    fits: tuple[Fit, ...]
    sizes: tuple[SizeBin, ...]
    waits: tuple[WaitRow, ...]
    culprits: tuple[Culprit, ...]
    findings: tuple[Finding, ...]
    happened: tuple[str, ...]
    whatifs: tuple[WhatIf, ...]
    captures: tuple[CaptureRow, ...]
    missing: tuple[Missing, ...]
    losses: tuple[Loss, ...]
    clocks: tuple[ClockRow, ...]
    evidence: tuple[Share, ...]
    facts: tuple[Fact, ...]
    timeline: Timeline | None
    absent: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """As JSON values, in the shape of docs/report.schema.json."""
        return dataclasses.asdict(self)


def json_schema() -> dict[str, Any]:
    """JSON Schema of `Report.to_json()`; docs/report.schema.json is this (imports pydantic)."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Report).json_schema(mode="serialization")
    schema["properties"]["schema"] = {"const": SCHEMA}
    for part in (schema, *schema["$defs"].values()):
        part["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **schema}
