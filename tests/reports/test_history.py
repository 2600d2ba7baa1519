"""What a night's comparison with its job's history must say, and when it must say nothing."""

from __future__ import annotations

import random

import pytest

from pipeline.reports.history import DAY_NS, Night, Rules, Verdict, judge

GOOD = {"mfu": 28.0, "compute_loss": 26.0, "comm_unattributed": 45.0, "gpu_dependency": 1.0}
FALLBACK = {
    "mfu": 14.0,
    "compute_loss": 13.0,
    "rdma_transfer": 22.5,
    "ctl_loop": 30.0,
    "ctl_schedule": 5.0,
    "ctl_post": 15.0,
    "gpu_dependency": 0.5,
}
"""Twice the time: what was communication is known as the wire's now, and as much again is the proxy's."""


def night(number: int, shares: dict[str, float], *, noise: float = 0.0, findings: tuple[str, ...] = ()) -> Night:
    """A night; its step time follows from MFU·T = 28 % of 1 ms."""
    mfu = shares.get("mfu")
    moved = (
        {**shares, "mfu": mfu + noise, "comm_unattributed": shares.get("comm_unattributed", 0.0) - noise}
        if mfu
        else shares
    )
    step_ns = {"step_ns": 28e6 / moved["mfu"]} if mfu else {}
    return Night(f"n{number:02}", number * DAY_NS, {**step_ns, **moved}, frozenset(findings))


def told(verdicts: list[Verdict]) -> dict[str, str]:
    return {v.run: v.status for v in verdicts if v.status not in ("steady", "learning")}


def test_a_fallback_is_told_once_with_the_class_that_took_the_points() -> None:
    nights = [night(n, GOOD if n < 21 else FALLBACK, findings=("fell_back",) if n >= 21 else ()) for n in range(1, 31)]
    verdicts = judge(nights)

    assert told(verdicts) == {"n21": "worse"}
    verdict = verdicts[20]
    assert verdict.lost == pytest.approx(14.0)
    # 35 and 15 % of a step in which nothing else grew: 70 and 30 % of the loss.
    assert [(cost.name, pytest.approx(cost.points)) for cost in verdict.costs if cost.points > 0] == [
        ("control_plane_alpha", 9.8),
        ("cpu_doorbell", 4.2),
    ]
    assert verdict.new_findings == ("fell_back",)
    assert ("n21", pytest.approx(14.0)) == (verdicts[29].since, verdicts[29].standing)


def test_time_that_only_got_a_finer_name_is_no_change() -> None:
    finer = {"mfu": 28.0, "compute_loss": 26.0, "rdma_transfer": 30.0, "wait_sender": 15.0, "gpu_dependency": 1.0}
    assert told(judge([night(n, GOOD if n < 11 else finer) for n in range(1, 16)])) == {}


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_not_told_and_a_loss_beyond_it_is(seed: int) -> None:
    draw = random.Random(seed)
    noises = [draw.gauss(0, 0.3) for _ in range(30)]
    quiet = [night(n, GOOD, noise=noises[n]) for n in range(30)]
    late = {name: points * 24 / 28 for name, points in GOOD.items()} | {"wait_straggler": 100 * 4 / 28}
    loud = [night(n, late if n >= 20 else GOOD, noise=noises[n]) for n in range(30)]

    assert told(judge(quiet)) == {}
    assert told(judge(loud)) == {"n20": "worse"}
    assert judge(loud)[20].costs[0].name == "wait_straggler"


def test_one_bad_night_is_told_and_the_return_to_the_level_before_too() -> None:
    nights = [night(n, FALLBACK if n == 8 else GOOD) for n in range(1, 15)]
    verdicts = judge(nights)
    assert told(verdicts) == {"n08": "worse", "n09": "better"}
    assert [verdicts[-1].since, verdicts[-1].standing] == [None, None]


def test_a_slow_loss_too_small_for_any_one_night_is_told_once_it_stands_out() -> None:
    draw = random.Random(3)
    nights = [night(n, GOOD, noise=-0.08 * n + draw.gauss(0, 0.05)) for n in range(30)]
    first = next(v for v in judge(nights) if v.status not in ("steady", "learning"))
    assert (first.status, first.drift) == ("worse", True)
    assert first.lost is not None and first.lost > 0.5


def test_a_change_hidden_by_another_one_is_told_as_a_shift() -> None:
    shifted = {**GOOD, "compute_loss": 22.0, "host_data": 4.0}
    verdicts = judge([night(n, GOOD if n < 10 else shifted) for n in range(1, 16)])
    assert told(verdicts) == {"n10": "shifted"}
    assert verdicts[9].costs[0].name == "host_data"


def test_too_few_nights_or_none_within_the_history_claim_nothing() -> None:
    few = judge([night(n, GOOD if n < 5 else FALLBACK) for n in range(1, 6)])
    late = judge([*(night(n, GOOD) for n in range(1, 10)), night(90, FALLBACK)], Rules(history_ns=28 * DAY_NS))
    assert [v.status for v in few] == ["learning"] * 5
    assert late[-1].status == "learning"


def test_a_night_without_mfu_among_nights_that_have_one_is_not_comparable() -> None:
    broken = night(9, {"compute": 50.0, "idle_other": 50.0})
    assert told(judge([*(night(n, GOOD) for n in range(1, 9)), broken, night(10, GOOD)])) == {"n09": "unknown"}


def test_without_mfu_the_growth_of_the_step_time_is_told_in_percent() -> None:
    def decode(n: int, step_ns: float, **shares: float) -> Night:
        return Night(f"n{n:02}", n * DAY_NS, {"step_ns": step_ns, **shares})

    nights = [decode(n, 12e6, compute=40.0, ctl_loop=60.0) for n in range(1, 10)]
    verdict = judge([*nights, decode(10, 48e6, compute=10.0, blocking_rtt=75.0, ctl_loop=15.0)])[-1]
    assert ("worse", "percent", pytest.approx(300.0)) == (verdict.status, verdict.unit, verdict.lost)
    assert ("blocking_rtt", pytest.approx(300.0)) == (verdict.costs[0].name, verdict.costs[0].points)
