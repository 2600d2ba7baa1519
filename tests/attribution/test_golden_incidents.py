"""Golden values of whole incidents: an expert-parallel job of 64 GPUs (G5), a decode that waits for each put (G6)."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from pipeline.attribution.mfu import Cell, waterfall
from pipeline.attribution.replay import wire_ns
from tests.attribution.build import attributed, rows
from tests.attribution.test_network_account import kernel, stop_and_wait

MS = 1_000_000
G5_STEP = {"compute": 650 * MS, "exposed": 1_200 * MS}
G5_FLOPS = 21_320_382_720_000_000  # 18.2 % of 64 dense peaks of 989.4 TFLOP/s over 1.85 s


def points(run_dir: object) -> dict[str, Fraction]:
    found = rows(run_dir, "SELECT category, numerator, denominator FROM mfu WHERE scope = 'run'")  # type: ignore[arg-type]
    return {category: Fraction(int(top), int(bottom)) for category, top, bottom in found}


def test_g5_one_of_64_gpus_has_an_mfu_of_18_percent(tmp_path: Path) -> None:
    run_dir = attributed(
        tmp_path,
        {
            "model": {"flops_per_step": G5_FLOPS},
            "hardware": {"gpu": "H100 SXM"},
            "ranks": {"expected": 64},
        },
        nvtx=[{"start_ns": 0, "end_ns": 1_850 * MS, "text": "step_0"}],
        gpu_ops=[{"start_ns": 0, "end_ns": 650 * MS}, kernel(650 * MS, 1_850 * MS)],
    )
    found = points(run_dir)
    assert {category: round(float(share), 3) for category, share in found.items()} == {
        "mfu": 18.2,
        "compute_loss": 16.935,
        "comm_unattributed": 64.865,
    }
    assert sum(found.values()) == 100
    ((ideal,),) = rows(run_dir, "SELECT value FROM run_facts WHERE name = 'ideal_step_ns'")
    assert Fraction(ideal) == Fraction("0.3367") * 10**9


def test_g5_of_the_exposed_all_to_all_the_wire_is_less_than_half() -> None:
    """224 958 messages of 114 688 B, one every 5.334 µs, over a NIC of 50 GB/s."""
    assert round(G5_STEP["exposed"] / 224_958) == 5_334
    wire = int(wire_ns([224_958 * 114_688], 50 * 10**9)[0])
    cells = [
        Cell("compute", "measured_nsys", G5_STEP["compute"]),
        Cell("rdma_transfer", "inferred", wire),
        Cell("net_excess", "inferred", G5_STEP["exposed"] - wire),
    ]
    found = {p.category: p.points for p in waterfall(cells, 1_850 * MS, Fraction("0.3367") * 10**9)}
    assert {category: f"{float(share):.3f}" for category, share in found.items()} == {
        "mfu": "18.200",
        "compute_loss": "16.935",
        "rdma_transfer": "27.892",
        "net_excess": "36.973",
    }
    assert sum(found.values()) == 100
    assert (round(wire / 1e9, 3), round((G5_STEP["exposed"] - wire) / 1e9, 3)) == (0.516, 0.684)


@pytest.mark.parametrize(("round_trips", "flight"), [(4_600, 10_000), (5_750, 8_000)])
def test_g6_a_blocking_wait_takes_tpot_from_12_to_58_ms(round_trips: int, flight: int, tmp_path: Path) -> None:
    """One token of 12 ms as it should be, and one whose signals are each waited for; no FLOPs: shares of TPOT."""
    posts, completions = stop_and_wait(round_trips, 0, flight, 0)
    for row in posts:
        row["enter_ns"] += 24 * MS
        row["exit_ns"] += 24 * MS
    for row in completions:
        row["seen_ns"] += 24 * MS
    # Hidden behind the compute of the first token: single messages with a payload, which tell the base round trip.
    for k in range(8):
        posts.append({"enter_ns": k * MS, "exit_ns": k * MS, "wr_id": k, "bytes": 4_096, "qp": 2})
        completions.append({"seen_ns": k * MS + 82 + flight, "wr_id": k, "qp": 2})
    run_dir = attributed(
        tmp_path,
        {"steps": {"kind": "decode"}, "network": {"beta_bytes_per_s": 50_000_000_000}},
        ranks=[{"rank": 0, "pid": 1, "nic": "mlx5_0"}],
        nvtx=[
            {"start_ns": 0, "end_ns": 12 * MS, "text": "decode_step_0"},
            {"start_ns": 12 * MS, "end_ns": 70 * MS, "text": "decode_step_1"},
        ],
        gpu_ops=[
            {"start_ns": 0, "end_ns": 12 * MS},
            {"start_ns": 12 * MS, "end_ns": 24 * MS},
            kernel(24 * MS, 70 * MS),
        ],
        rdma_posts=posts,
        rdma_completions=completions,
    )
    ((before,), (after,)) = rows(run_dir, "SELECT end_ns - start_ns FROM steps ORDER BY step")
    assert (before, after, round(after / before, 3)) == (12 * MS, 58 * MS, 4.833)
    slow = rows(
        run_dir,
        "SELECT category, attributed_ns, round(points, 2) FROM mfu WHERE scope = 'step' AND step = 1 ORDER BY category",
    )
    assert {(category, ns, share) for category, ns, share in slow if ns} == {
        ("blocking_rtt", 46 * MS, 79.31),
        ("compute", 12 * MS, 20.69),
    }
    ((text,),) = rows(run_dir, "SELECT text FROM findings WHERE code = 'blocking_rtt'")
    assert f"Stop-and-wait: {round_trips} messages" in text
    assert f"{(round_trips - 1) * flight / 1e6:.1f} ms in all could be pipelined" in text
