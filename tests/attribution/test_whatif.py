"""What-ifs by replay: the contract's worked values, bounds in their order, and what the target solver says."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.attribution.changes import CHANGES, Part, Traffic
from pipeline.attribution.replay import Messages
from pipeline.attribution.whatif import Step, changed_wall_ns, exposed_for_target, replay_error

MS = 1_000_000
BETA = 50_000_000_000
# G5: 224 958 messages of 114 688 bytes a NIC, 5.334 µs each; T 1.85 s, 1.2 s of it exposed all-to-all.
N, BYTES, EACH_NS = 224_958, 114_688, 5_334
STEP_NS, EXPOSED_NS = 1_850 * MS, 1_200 * MS
PEAK_MFU = Fraction("18.2")
IDEAL_NS = PEAK_MFU * STEP_NS / 100


def _part(messages: Messages, exposed_ns: int, outstanding: int | None = None, gpus: int = 8, rtt0_ns: int = 0) -> Part:
    traffic = Traffic(messages, BETA, rtt0_ns, outstanding)
    off_cpu = np.zeros(len(messages), np.int64)
    return Part(0, 0, exposed_ns, traffic.finish_ns, traffic, off_cpu, gpus, False)


def _incident() -> Step:
    messages = Messages(bytes=np.full(N, BYTES, np.int64), schedule_ns=EACH_NS - 1_500, doorbell_ns=1_500)
    return Step(STEP_NS, ((_part(messages, EXPOSED_NS),),))


def _mfu(wall_ns: float) -> float:
    return round(float(100 * IDEAL_NS) / wall_ns, 2)


def test_g5w_gpu_initiated_posts_are_between_serial_alpha_and_the_wire_bound() -> None:
    pessimistic, _, optimistic = changed_wall_ns(_incident(), [CHANGES["gpu_initiated"]])
    assert (round(pessimistic / 1e9, 3), round(optimistic / 1e9, 3)) == (1.391, 1.166)
    assert (round(_mfu(pessimistic), 1), round(_mfu(optimistic), 1)) == (24.2, 28.9)


def test_g5w_full_overlap_leaves_the_compute() -> None:
    assert changed_wall_ns(_incident(), [CHANGES["full_overlap"]])[1] == 650 * MS
    assert round(_mfu(650 * MS), 1) == 51.8


def test_full_overlap_hides_communication_of_which_no_messages_were_captured() -> None:
    unseen = Step(STEP_NS, ((_part(Messages(bytes=np.zeros(0, np.int64)), EXPOSED_NS),),))
    assert changed_wall_ns(unseen, [CHANGES["full_overlap"]]) == (650 * MS, 650 * MS, 650 * MS)


def test_g5w_two_hop_at_48_gb_per_s() -> None:
    """With the wire at the measured 48 GB/s, two-hop messages are bound by it."""
    step = _incident()
    part = step.operations[0][0]
    slower = replace(part, traffic=replace(part.traffic, beta_bytes_per_s=48_000_000_000))
    expected = changed_wall_ns(Step(STEP_NS, ((slower,),)), [CHANGES["two_hop"]])[1]
    assert round(expected / 1e9, 3) == pytest.approx(1.1875, abs=0.001)
    assert _mfu(expected) == pytest.approx(28.35, abs=0.03)


def test_g5w_the_target_solver_says_how_much_may_be_exposed() -> None:
    allowed = exposed_for_target(Fraction(STEP_NS), Fraction(EXPOSED_NS), IDEAL_NS, Fraction(45))
    assert round(float(allowed) / 1e6, 1) == 98.2
    assert exposed_for_target(Fraction(STEP_NS), Fraction(EXPOSED_NS), IDEAL_NS, Fraction(60)) < 0


def test_the_replay_of_an_unchanged_trace_has_no_error_where_nothing_else_happens() -> None:
    assert replay_error([_incident()]) == 0
    part = _incident().operations[0][0]
    late = Step(STEP_NS, ((replace(part, observed_ns=part.observed_ns * 11 // 10),),))
    assert replay_error([late]) == pytest.approx(1 / 11, abs=0.001)
    assert replay_error([Step(STEP_NS, ())]) is None


def test_fire_and_forget_takes_the_round_trips_out_of_a_stop_and_wait_chain() -> None:
    messages = Messages(bytes=np.full(1_000, 4_096, np.int64), doorbell_ns=300)
    part = _part(messages, 8_300_000, outstanding=1, rtt0_ns=7_918)
    pessimistic, expected, _ = changed_wall_ns(Step(10 * MS, ((part,),)), [CHANGES["fire_and_forget"]])
    assert 10 * MS - expected == 8_300_000 - (1_000 * 300 + 82 + 7_918)
    assert expected < pessimistic < 10 * MS


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 2_000_000), min_size=1, max_size=30),
    gap=st.integers(0, 20_000),
    post=st.integers(0, 5_000),
    chain=st.booleans(),
    names=st.lists(st.sampled_from(sorted(CHANGES)), min_size=1, max_size=4, unique=True),
)
def test_i8_floor_all_one_and_now_are_in_that_order(
    sizes: list[int], gap: int, post: int, chain: bool, names: list[str]
) -> None:
    messages = Messages(bytes=np.array(sizes, np.int64), schedule_ns=gap, doorbell_ns=post, fetch_ns=500)
    part = _part(messages, 0, outstanding=1 if chain else None, rtt0_ns=3_000)
    part = replace(part, exposed_ns=part.observed_ns)
    step = Step(part.observed_ns + 1 * MS, ((part,),))
    floor = step.wall_ns - step.exposed_ns
    for name in names:
        pessimistic, expected, optimistic = changed_wall_ns(step, [CHANGES[name]])
        assert floor <= optimistic <= expected <= pessimistic <= step.wall_ns
    together = changed_wall_ns(step, [CHANGES[name] for name in CHANGES if name in names])
    assert floor <= together[2] <= together[1] <= together[0] <= step.wall_ns
