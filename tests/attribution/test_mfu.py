"""FLOPs, the waterfall and POP efficiencies in exact arithmetic: golden values G5, G9, G9a, G10 and I5."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.attribution.mfu import (
    Cell,
    IdealExceedsCompute,
    ideal_ns,
    model_flops,
    pop_efficiencies,
    rank_peak,
    waterfall,
)
from pipeline.model.run import HardwareSection, ModelSection
from tests.attribution.build import Row, attributed, rows

MS = 1_000_000


def _points(run_dir: object, scope: str) -> dict[str, Fraction]:
    found = rows(run_dir, f"SELECT category, numerator, denominator FROM mfu WHERE scope = '{scope}' ORDER BY category")  # type: ignore[arg-type]
    return {category: Fraction(int(top), int(bottom)) for category, top, bottom in found}


def _step(rank: int, compute: int, comm: int, tail: int) -> dict[str, list[Row]]:
    """Compute, then exposed communication, then idle time, ms."""
    at = {"rank": rank}
    return {
        "nvtx": [{**at, "start_ns": 0, "end_ns": (compute + comm + tail) * MS, "text": "step_0"}],
        "gpu_ops": [
            {**at, "start_ns": 0, "end_ns": compute * MS},
            {**at, "start_ns": compute * MS, "end_ns": (compute + comm) * MS, "op_class": "comm", "stream": 8},
        ],
    }


def test_G9_the_waterfall_of_two_ranks_adds_up_to_100_points() -> None:
    cells = [
        Cell("compute", "measured_nsys", 110 * MS),
        Cell("rdma_transfer", "inferred", 40 * MS),
        Cell("ctl_loop", "measured_ebpf", 20 * MS),
        Cell("wait_straggler", "inferred", 10 * MS),
        Cell("idle_other", "measured_nsys", 20 * MS),
    ]
    ideal = 2 * ideal_ns(Fraction(8 * 10**13), 2, Fraction(10**15))
    assert {point.category: point.points for point in waterfall(cells, 200 * MS, ideal)} == {
        "mfu": 40,
        "compute_loss": 15,
        "rdma_transfer": 20,
        "ctl_loop": 10,
        "wait_straggler": 5,
        "idle_other": 10,
    }


def test_G9_the_run_divides_the_whole_jobs_flops_over_its_ranks(tmp_path: Path) -> None:
    first, second = _step(0, 60, 30, 10), _step(1, 50, 40, 10)
    run_dir = attributed(
        tmp_path,
        {"model": {"flops_per_step": 80_000_000_000_000}, "hardware": {"peak_tflops": 1000}},
        nvtx=first["nvtx"] + second["nvtx"],
        gpu_ops=first["gpu_ops"] + second["gpu_ops"],
    )
    points = _points(run_dir, "run")
    assert (points["mfu"], points["compute_loss"], sum(points.values())) == (40, 15, 100)


@pytest.mark.parametrize(("tflops", "percent"), [("430", "43.46"), ("400", "40.43"), ("380", "38.41")])
def test_G9a_mfu_of_a_gpu_on_the_dense_peak(tflops: str, percent: str) -> None:
    found = rank_peak(HardwareSection(), "NVIDIA H100 80GB HBM3")
    assert found.flops_per_s is not None
    assert f"{float(100 * Fraction(tflops) * 10**12 / found.flops_per_s):.2f}" == percent


def test_G5_the_incident_of_64_gpus_in_points() -> None:
    wall, mfu_points = Fraction(185, 100), Fraction(182, 10)
    ideal, wire = wall * mfu_points / 100, Fraction(224_958 * 114_688, 50 * 10**9)
    parts = [100 * part / wall for part in (ideal, Fraction(65, 100) - ideal, wire, Fraction(12, 10) - wire)]
    assert [f"{float(part):.3f}" for part in parts] == ["18.200", "16.935", "27.892", "36.973"]
    assert (f"{float(ideal):.4f}", sum(parts)) == ("0.3367", 100)


def test_G10_pop_efficiencies_and_what_each_costs() -> None:
    found = pop_efficiencies([80, 90, 100, 70], 140, [120])
    assert found is not None
    assert (found.load_balance, found.serialisation, found.transfer, found.parallel) == (
        Fraction(85, 100),
        Fraction(100, 120),
        Fraction(120, 140),
        Fraction(85, 140),
    )
    assert [f"{float(points):.3f}" for points in found.points().values()] == ["60.714", "10.714", "14.286", "14.286"]
    assert sum(found.points().values()) == 100


def test_transfer_efficiency_is_the_product_of_what_each_part_given_back_makes_it_longer() -> None:
    """A time below the one before it (clock errors) counts as equal; the last factor is what is left."""
    found = pop_efficiencies([80, 90, 100, 70], 140, [112, 126, 125, 130, 135])
    assert found is not None
    assert found.transfer_factors == tuple(
        Fraction(*pair) for pair in ((112, 126), (126, 126), (126, 130), (130, 135), (135, 140))
    )
    assert prod(found.transfer_factors) == found.transfer == Fraction(112, 140)


@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=6),
    st.integers(0, 10**12),
    st.fractions(0, 1, max_denominator=10**6),
)
def test_I5_mfu_and_losses_are_100_points_exactly(losses: list[int], compute: int, share: Fraction) -> None:
    wall = sum(losses) + compute
    if wall == 0:
        return
    cells = [
        Cell("compute", "measured_nsys", compute),
        *(Cell("memcpy", str(n), loss) for n, loss in enumerate(losses)),
    ]
    assert sum(point.points for point in waterfall(cells, wall, share * compute)) == 100


def test_an_ideal_beyond_the_compute_time_is_an_error_and_no_bar() -> None:
    with pytest.raises(IdealExceedsCompute, match=r"2\.000 ms at the peak, but kernels ran for 1\.000 ms"):
        waterfall([Cell("compute", "measured_nsys", MS)], 2 * MS, Fraction(2 * MS))


def test_a_run_whose_flops_can_not_be_says_so_and_has_no_mfu(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        {"model": {"flops_per_step": 10**18}, "hardware": {"peak_tflops": 1}},
        **_step(0, 60, 30, 10),
    )
    assert _points(run_dir, "run") == {"compute": 60, "comm_unattributed": 30, "idle_other": 10}
    assert rows(run_dir, "SELECT count(*) FROM run_facts WHERE name = 'mfu_error'") == [(1,)]


def test_an_unknown_gpu_gives_no_mfu_and_says_why(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        {"model": {"flops_per_step": 10**13}},
        ranks=[{"rank": 0, "pid": 1, "gpu_name": "Imaginary 9000"}],
        **_step(0, 60, 30, 10),
    )
    assert "mfu" not in _points(run_dir, "run")
    why = rows(run_dir, "SELECT text FROM run_facts WHERE name = 'mfu_absent'")
    assert why == [("rank 0: no dense bf16 peak is known of 'Imaginary 9000'; give [hardware] peak_tflops",)]


def test_attention_counts_half_with_a_causal_mask() -> None:
    size = {"params_active": 10**9, "layers": 4, "hidden": 2048, "seq_len": 1024, "tokens_per_step": 8192}
    causal, full = (model_flops(ModelSection.model_validate({**size, "causal": c})) for c in (True, False))
    assert causal is not None
    assert full is not None
    attention = 4 * 2048 * 1024 * 8192
    assert (causal.per_step, full.per_step) == (
        6 * 10**9 * 8192 + 6 * attention,
        6 * 10**9 * 8192 + 12 * attention,
    )


def test_F61_experts_count_by_the_parameters_a_token_meets_and_grouped_heads_by_theirs() -> None:
    """Mixtral 8x7B: 12.9 of 46.7 billion are active; attention's scores have as many heads whatever shares keys and values."""
    size = {"layers": 32, "hidden": 4096, "heads": 32, "seq_len": 4096, "tokens_per_step": 1 << 20}
    attention = 6 * 32 * 4096 * 4096 * (1 << 20)
    for kv_heads in (8, 32):
        found = model_flops(
            ModelSection.model_validate({**size, "kv_heads": kv_heads, "params_active": 12_900_000_000})
        )
        assert found is not None
        assert found.per_step == 6 * 12_900_000_000 * (1 << 20) + attention


def test_decode_has_no_mfu_but_the_same_waterfall(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        {"model": {"flops_per_step": 10**13}, "hardware": {"gpu": "H100"}, "steps": {"kind": "decode"}},
        **_step(0, 60, 30, 10),
    )
    assert _points(run_dir, "run") == {"compute": 60, "comm_unattributed": 30, "idle_other": 10}


def test_hfu_stands_beside_mfu_only_where_recompute_is_known(tmp_path: Path) -> None:
    config = {"flops_per_step": 30_000_000_000_000, "recompute_flops_per_step": 10_000_000_000_000}
    run_dir = attributed(tmp_path, {"model": config, "hardware": {"peak_tflops": 1000}}, **_step(0, 60, 30, 10))
    assert rows(run_dir, "SELECT value FROM run_facts WHERE name = 'hfu_points'") == [("40.000000",)]
    assert _points(run_dir, "run")["mfu"] == 30
