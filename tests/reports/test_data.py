"""The report as data, before anything is drawn."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest

from pipeline.lake.catalog import find_run
from pipeline.model.errors import UsageError
from pipeline.reports import data, html, load
from tests.reports.lakes import MS, T0, new_run

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def report(small_lake: Path) -> data.Report:
    return load.load(find_run(small_lake, None))


def test_step_time_counts_complete_steps_only(report: data.Report) -> None:
    t = report.step_time
    assert t is not None
    assert (t.rank_steps, t.ranks, t.steps, t.all_steps, t.partial_steps) == (6, 2, 3, 8, 2)
    assert (t.mean_ns, t.median_ns, t.min_ns, t.max_ns) == (110 * MS, 100 * MS, 100 * MS, 130 * MS)


def test_bars_stand_in_the_order_of_the_tree_and_add_up_to_100(report: data.Report) -> None:
    assert [(bar.category, bar.shown) for bar in report.bars] == [
        ("mfu", "36.36"), ("compute_loss", "20.45"), ("wait_straggler", "6.82"), ("rdma_transfer", "18.18"),
        ("ctl_schedule", "3.64"), ("ctl_loop", "2.73"), ("ctl_post", "1.82"), ("net_latency", "0.91"), ("net_excess", "1.82"),
        ("memcpy", "2.73"), ("host_launch", "4.54"),
    ]  # fmt: skip
    assert sum(Decimal(bar.shown) for bar in report.bars) == 100


def test_mfu_is_that_of_the_mfu_table(report: data.Report) -> None:
    assert report.mfu_points == pytest.approx(100 * 40 / 110)
    assert (report.mfu_evidence, report.mfu_absent) == ("modelled", None)


def test_headline_classes_keep_latency_and_excess_outside(report: data.Report) -> None:
    assert [(c.label, c.mean_ns, c.shown, c.evidence) for c in report.classes] == [
        ("CPU doorbell (WQE + doorbell)", 2 * MS, "1.82", ("measured_ebpf",)),
        ("control-plane α", 7 * MS, "6.37", ("measured_ebpf",)),
        ("RDMA transfer", 20 * MS, "18.18", ("inferred",)),
        ("blocking RTT", 0, "0.00", ()),
    ]
    assert report.classes[2].beside_mean_ns == 2 * MS


def test_category_bounds_and_evidence_are_kept(report: data.Report) -> None:
    transfer = next(row for row in report.categories if row.category == "rdma_transfer")
    assert (transfer.mean_ns, transfer.mean_lo_ns, transfer.mean_hi_ns) == (20 * MS, 18 * MS, 22 * MS)
    assert transfer.levels == (data.Level("inferred", 120 * MS, 108 * MS, 132 * MS),)


def test_views_show_which_rank_and_which_step(report: data.Report) -> None:
    assert [(r.rank, r.steps, r.mean_ns, r.categories["compute"]) for r in report.ranks] == [
        (0, 3, 110 * MS, 55 * MS),
        (1, 3, 110 * MS, 70 * MS),
    ]
    assert [(s.step, s.counted, s.max_ns, s.slowest_rank) for s in report.steps] == [
        (0, False, 100 * MS, 0), (1, True, 100 * MS, 0), (2, True, 100 * MS, 0), (3, True, 130 * MS, 0),
    ]  # fmt: skip
    assert report.cells.categories["wait_straggler"] == ((5 * MS, 5 * MS, 5 * MS, 35 * MS), (0, 0, 0, 0))


def test_waits_name_the_culprit_and_what_it_did(report: data.Report) -> None:
    wait = report.waits[0]
    assert (wait.rank, wait.culprit_rank, wait.kind, wait.n, wait.wait_ns, wait.max_ns, wait.max_step) == (
        0, 1, "straggler", 3, 45 * MS, 35 * MS, 3,
    )  # fmt: skip
    assert report.culprits == (data.Culprit(1, "compute", 45 * MS, 1, 3, 0),)


def test_the_worst_step_is_drawn_around_its_longest_exposed_communication(report: data.Report) -> None:
    t = report.timeline
    assert t is not None
    assert (t.rank, t.step, t.exposed_ns) == (0, 3, 67 * MS)
    assert t.start_ns == T0 + 355 * MS - 67 * MS // 6
    assert t.end_ns == T0 + 430 * MS
    assert [i.row_name for i in t.items][:3] == ["compute", "ctl_cpu", "host_launch"]


def test_a_message_table_has_sizes_flights_and_what_never_finished(report: data.Report) -> None:
    m = report.messages[0]
    assert (m.nic, m.n, m.size_min_bytes, m.size_max_bytes, m.post_p50_ns, m.blocked, m.no_completion) == (
        "mlx5_0", 8, 4096, 262_144, 1_200, 0, 0,
    )  # fmt: skip
    assert [(b.bytes, b.n, b.flight_p50_ns) for b in report.sizes] == [
        (4096, 2, 6091), (16384, 2, 6364), (65536, 2, 7456), (262144, 2, 11825),
    ]  # fmt: skip


def test_what_the_data_cannot_identify_is_absent_not_zero(report: data.Report) -> None:
    fit = report.fits[1]
    assert (fit.status, fit.alpha_ns, fit.beta_bytes_per_s) == ("unidentified", None, None)


def test_alpha_is_told_apart_into_what_was_measured_and_the_rest(report: data.Report) -> None:
    """Of 6 µs 1.2 µs are the post and 4.5 µs the base round trip."""
    fitted, unfitted = report.fits
    assert (fitted.alpha_ns, fitted.post_ns, fitted.rtt0_ns, fitted.alpha_rest_ns) == (6_000, 1_200, 4_500, 300)
    assert (unfitted.post_ns, unfitted.alpha_rest_ns) == (None, None)


def test_missing_sources_are_named(report: data.Report) -> None:
    assert [gap.source for gap in report.missing] == ["comm_phases", "cuda_api", "counters"]
    assert [(c.status, c.reason) for c in report.captures][1] == (
        "unusable",
        "a Git LFS pointer, not the file; run: git lfs pull",
    )


def test_one_step_is_over_its_ranks_alone(small_lake: Path) -> None:
    report = load.load(find_run(small_lake), step=3)
    assert report.step_time is not None
    assert (report.step_time.rank_steps, report.step_time.mean_ns) == (2, 130 * MS)
    assert [s.step for s in report.steps] == [3]
    assert report.mfu_points == pytest.approx(100 * 40 / 130)


def test_one_rank_has_its_own_mfu_and_breakdown(small_lake: Path) -> None:
    report = load.load(find_run(small_lake, "small"), rank=1)
    assert [(b.category, b.shown) for b in report.bars][:2] == [("mfu", "36.36"), ("compute_loss", "27.27")]
    assert [r.rank for r in report.ranks] == [1]
    assert report.messages == ()


def test_an_empty_run_says_what_it_lacks(tmp_path: Path) -> None:
    new_run(tmp_path, "empty")
    report = load.load(find_run(tmp_path, None))
    assert report.step_time is None
    assert report.bars == ()
    assert all(row.mean_ns is None and row.absent for row in report.classes)
    assert sorted(report.absent) == ["findings", "messages", "steps", "timeline", "waits", "whatifs"]
    assert "gpu_ops" in [gap.source for gap in report.missing]


def test_a_rank_or_step_that_the_run_lacks_is_an_error_that_says_which_it_has(small_lake: Path) -> None:
    run = find_run(small_lake, None)
    with pytest.raises(UsageError, match="run small has no rank 7; it has ranks from 0 to 1"):
        load.load(run, rank=7)
    with pytest.raises(UsageError, match="run small has no step 9; it has steps from 0 to 3"):
        load.load(run, step=9)


def test_a_step_that_may_not_have_done_the_flops_has_no_mfu_and_keeps_its_compute(small_lake: Path) -> None:
    report = load.load(find_run(small_lake), step=0)
    assert report.step_time is not None
    assert (report.step_time.basis, report.step_time.rank_steps) == ("the step asked for", 2)
    assert (report.mfu_points, report.bars[0].category) == (None, "compute")
    assert report.mfu_absent == "these steps are partial or outliers: whether they did a step's FLOPs is not known"


def test_output_is_what_the_json_schema_says(report: data.Report) -> None:
    schema = json.loads((DOCS / "report.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(json.loads(json.dumps(report.to_json())), schema)


def test_the_json_schema_in_the_docs_is_that_of_the_code() -> None:
    assert json.loads((DOCS / "report.schema.json").read_text(encoding="utf-8")) == data.json_schema()


def _replayed(run_dir: object, config: object) -> list[dict[str, object]]:
    row = {"text": "the GPU posts", "formula": "f", "evidence": "assumed", "note": "off by 0.40 %", "replay_error": 0.004,
           "base_ns": 110e6, "floor_ns": 60e6}  # fmt: skip
    return [
        {
            **row,
            "change": "gpu_initiated",
            "pessimistic_ns": 105e6,
            "expected_ns": 90e6,
            "optimistic_ns": 80e6,
            "points": 8.08,
        },
        {
            **row,
            "change": "two_hop",
            "pessimistic_ns": 110e6,
            "expected_ns": None,
            "optimistic_ns": 85e6,
            "points": None,
        },
    ]


def test_what_would_help_is_what_the_replay_says_in_its_order(
    small_lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "whatif", _replayed)
    report = load.load(find_run(small_lake))
    assert [(w.change, w.expected_ns, w.points, w.floor_ns) for w in report.whatifs] == [
        ("gpu_initiated", 90e6, 8.08, 60e6),
        ("two_hop", None, None, 60e6),
    ]
    page = html.render(report)
    assert "gpu_initiated: 80 ms to 105 ms, 90 ms" in page
    assert "two_hop: 85 ms to 110 ms, bounds only" in page


def test_a_replay_that_can_not_be_made_is_said_to_be_absent(small_lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(run_dir: object, config: object) -> list[dict[str, object]]:
        raise UsageError("no communication to change was captured in this run")

    monkeypatch.setattr(load, "whatif", refuse)
    report = load.load(find_run(small_lake))
    assert (report.whatifs, report.absent["whatifs"]) == ((), "no communication to change was captured in this run")


def test_what_happened_is_three_sentences_each_with_number_and_evidence(report: data.Report) -> None:
    assert report.happened == (
        "Step time was 110 ms on average (100 ms to 130 ms; 2 ranks, 3 steps) at an MFU of 36.36 % [modelled].",
        "The largest loss is compute below peak (compute_loss): 22.5 ms per rank and step, 20.45 points [modelled].",
        "Rank 1 came 35 ms late to AllReduce in step 3 while it computed (wait of the others, ms: 35) [inferred].",
    )
