"""What a played run must be, whatever the scenario: physics, and the figures that its page gives."""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from pipeline.simulate import SCENARIOS, cluster
from pipeline.simulate.cluster import CODES, Cluster, Columns, Played, expected_gap_ns
from pipeline.simulate.run import sized_scenario
from pipeline.simulate.truth import account, divide


@cache
def _played(name: str, scale: float | None = None) -> Played:
    base = SCENARIOS[name]
    return Cluster(base.scaled(scale or base.scale), nodes=2, gpus_per_node=2, steps=3, seed=5).play()


def _share(played: Played) -> dict[str, float]:
    truth = account(played)
    total: Counter[str] = Counter()
    for category, ns in zip(truth.category, truth.true_ns.tolist(), strict=True):
        total[category] += ns
    whole = sum(total.values())
    return {category: 100 * ns / whole for category, ns in total.items()}


def _step_ns(played: Played) -> float:
    return float(np.diff(account(played).edges, axis=1).mean())


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_the_true_times_of_a_step_add_up_to_the_step(name: str) -> None:
    truth = account(_played(name))
    total = np.zeros((4, 3), np.int64)
    np.add.at(total, (truth.rank, truth.step), truth.true_ns)

    assert np.diff(truth.edges, axis=1).tolist() == total.tolist()
    assert truth.true_ns.min() > 0


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_no_wire_carries_more_than_beta(name: str) -> None:
    played = _played(name)
    truth = played.truth
    wire = truth["category"] == CODES["rdma_transfer"]
    nic = truth["rank"][wire]
    if played.scenario.shared_nic:
        nic = np.where(nic % 2 == 1, nic - 1, nic)
    order = np.lexsort((truth["end"][wire], truth["start"][wire], nic))
    start, end, nic = truth["start"][wire][order], truth["end"][wire][order], nic[order]

    assert len(played.posts) == start.size
    assert not ((start[1:] < end[:-1]) & (nic[1:] == nic[:-1])).any()
    carried = np.bincount(played.posts["rank"], played.posts["bytes"])
    served = np.bincount(truth["rank"][wire], truth["end"][wire] - truth["start"][wire])
    assert (carried * 1e9 <= served * played.scenario.beta_bytes_per_s * (1 + 1e-9)).all()


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_message_is_seen_complete_no_earlier_than_wire_and_base_latency_allow(name: str) -> None:
    played = _played(name)
    posts, done, s = played.posts, played.done, played.scenario
    flight = done["seen"] - posts["rung"]
    wire = -(-posts["bytes"] * 10**9 // s.beta_bytes_per_s)

    assert done["wr_id"].tolist() == posts["wr_id"].tolist()
    assert (flight >= s.fetch_ns + wire + s.rtt0_ns).all()


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_collective_ends_after_its_last_arrival_and_kernels_of_a_stream_do_not_overlap(name: str) -> None:
    played = _played(name)
    assert (played.ops["end"] > played.ops["last_arrival"]).all()
    gpu = played.gpu
    order = np.lexsort((gpu["start"], gpu["stream"], gpu["rank"]))
    same = (np.diff(gpu["rank"][order]) == 0) & (np.diff(gpu["stream"][order]) == 0)
    assert (gpu["start"][order][1:] >= gpu["end"][order][:-1])[same].all()
    assert (gpu["start"] >= gpu["launch_end"]).all()


def test_the_incident_has_the_figures_of_the_golden_case() -> None:
    full = SCENARIOS["moe-control-plane"].scaled(1)
    bandwidth = full.messages * full.message_bytes / (full.exposed_ns / 1e9)

    assert full.step_ns == 1_850_000_000
    assert round(bandwidth / 1e9, 2) == 21.5
    assert full.exposed_ns / full.messages == pytest.approx(5_334, abs=1)
    assert expected_gap_ns(full) == pytest.approx(5_334, rel=0.001)
    assert full.flops_per_step_per_gpu == pytest.approx(0.3367 * 989.4e12, rel=1e-4)


def test_a_scaled_incident_keeps_the_ratios() -> None:
    played = _played("moe-control-plane")
    share = _share(played)

    assert _step_ns(played) == pytest.approx(18_500_000, rel=0.01)
    assert share["compute"] == pytest.approx(35.135, abs=0.5)
    assert share["rdma_transfer"] == pytest.approx(27.892, abs=0.5)
    above = sum(share[c] for c in ("ctl_schedule", "ctl_loop", "ctl_post", "net_latency", "net_excess"))
    assert above == pytest.approx(36.973, abs=1)


@pytest.mark.parametrize(("name", "tpot_ms"), [("decode-stop-and-wait", 58), ("decode-fixed", 12)])
def test_time_per_output_token_is_what_the_page_says(name: str, tpot_ms: float) -> None:
    assert _step_ns(_played(name)) / 1e6 / SCENARIOS[name].scale == pytest.approx(tpot_ms, rel=0.02)


def test_the_blocking_wait_is_what_stop_and_wait_costs() -> None:
    share = _share(_played("decode-stop-and-wait"))
    assert share["blocking_rtt"] == pytest.approx(79.31, abs=2.5)
    assert "blocking_rtt" not in _share(_played("decode-fixed"))


@pytest.mark.parametrize(
    ("name", "category", "at_least"),
    [
        ("straggler", "wait_straggler", 15),
        ("straggler", "host_launch", 5),
        ("proxy-starved", "wait_sender", 5),
        ("proxy-starved", "ctl_schedule", 4),
        ("incast", "net_excess", 5),
        ("qp-thrash", "net_excess", 15),
        ("data-stall", "host_data", 2),
        ("data-stall", "wait_straggler", 2),
        ("moe-gpu-initiated", "comm_unattributed", 40),
        ("healthy", "compute", 94),
    ],
)
def test_each_incident_shows_in_its_category(name: str, category: str, at_least: float) -> None:
    assert _share(_played(name))[category] > at_least


@pytest.mark.parametrize("name", ["decode-fixed", "decode-stop-and-wait"])
@pytest.mark.parametrize("scale", [0.002, 0.005, 0.01, 0.02, 0.1])
def test_launches_are_late_in_a_short_step_and_the_scenario_says_so(name: str, scale: float) -> None:
    """From a twentieth of the step on they are a finding; what the host does between two steps has one length."""
    late = _share(_played(name, scale))["host_launch"] >= 4.5
    assert late <= ("launch_bound" in SCENARIOS[name].scaled(scale).consequences) <= (scale < 0.02)


def test_a_starved_proxy_starves_in_small_exchanges_too() -> None:
    played = _played("proxy-starved", 0.002)
    rank = SCENARIOS["proxy-starved"].starved_rank
    switches = played.switches
    lost = (switches["rank"] == rank) & (switches["what"] == 0)
    assert lost.sum() >= played.steps * played.scenario.exchanges


@pytest.mark.parametrize(
    ("steps", "expected", "consequences"),
    [
        (2, (), ()),
        (3, ("data_bound", "straggler"), ()),
        (5, ("data_bound",), ("straggler",)),
        (6, ("data_bound", "straggler"), ()),
    ],
)
def test_a_stall_is_expected_where_it_comes_to_pass_and_a_straggler_where_it_comes_again(
    steps: int, expected: tuple[str, ...], consequences: tuple[str, ...]
) -> None:
    sized = sized_scenario("data-stall", 2, 1, steps, 0.005)
    assert (sized.expected_findings, sized.consequences) == (expected, consequences)
    played = Cluster(sized, nodes=2, gpus_per_node=1, steps=steps, seed=5).play()
    assert bool(len(played.os)) == bool(expected)


def test_a_division_adds_up_and_gives_the_remainder_to_the_largest() -> None:
    assert divide(10, [1, 1, 1]) == [4, 3, 3]
    assert divide(7, [0, 5, 5]) == [0, 4, 3]
    assert divide(3, [0, 0]) == [3, 0]


def test_columns_that_go_to_files_are_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    def filled() -> Columns:
        columns = Columns()
        for step in range(5):
            columns.add(start=np.arange(7) + 10 * step, step=step, name=f"k{step}")
        return columns

    held = filled()
    monkeypatch.setattr(cluster, "SPILL_BYTES", 100)
    spilled = filled()
    assert len(held) == len(spilled) == 35
    assert isinstance(spilled["start"], np.memmap)
    for name in ("start", "step", "name"):
        assert spilled[name].tolist() == held[name].tolist()
    spilled.add(start=1, step=9, name="late")
    assert spilled["step"].tolist() == [*held["step"].tolist(), 9]
    assert len(Columns(kept=False)["start"]) == 0
