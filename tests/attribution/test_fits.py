"""Fits of alpha, g and beta: exact where there is no noise, robust where there is, silent where data can't tell."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.attribution.fits import Fit, fit_line, fit_path, make_fits
from pipeline.model.hardware import LINKS, effective_bytes_per_s, n_half_bytes
from tests.attribution.rdma import PAIRING, connect, run

SIZES = np.array([1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24])


def flights(sizes: np.ndarray, alpha_ns: float, beta: float) -> np.ndarray:
    return alpha_ns + sizes / beta * 1e9


def test_g7_without_noise_alpha_and_beta_come_out_exactly() -> None:
    sizes = np.repeat(SIZES, 10)
    fit = fit_path(sizes, flights(sizes, 6_000, 45e9))
    assert (fit.status, fit.n, fit.beta_source) == ("both", 70, "fit")
    assert fit.alpha_ns == pytest.approx(6_000, rel=1e-9)
    assert fit.beta_bytes_per_s == pytest.approx(45e9, rel=1e-9)
    assert fit.n_half_bytes == pytest.approx(270_000, rel=1e-9)
    for end in (fit.alpha_lo, fit.alpha_hi):
        assert end == pytest.approx(6_000, rel=1e-6)


def test_g7b_one_small_size_shows_alpha_and_never_beta() -> None:
    sizes = np.full(100, 4096)
    fit = fit_path(sizes, flights(sizes, 6_000, 45e9))
    assert (fit.status, fit.beta_bytes_per_s, fit.gap_ns) == ("alpha_only", None, None)
    assert fit.alpha_ns == pytest.approx(6_000, rel=0.02)


def test_g7b_one_large_size_shows_beta_and_never_alpha() -> None:
    sizes = np.full(100, 1 << 24)
    fit = fit_path(sizes, flights(sizes, 6_000, 45e9))
    assert (fit.status, fit.alpha_ns) == ("beta_only", None)
    assert fit.beta_bytes_per_s == pytest.approx(45e9, rel=0.02)


def test_g7b_one_middling_size_shows_neither() -> None:
    sizes = np.full(100, 114_688)
    assert fit_path(sizes, flights(sizes, 6_000, 45e9)) == Fit(100, "unidentified")


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_g7b_several_small_sizes_never_show_beta(noise: float) -> None:
    sizes = np.repeat([8, 64, 512, 4096], 50)
    jitter = 1 + noise * np.random.default_rng(3).standard_normal(len(sizes))
    fit = fit_path(sizes, flights(sizes, 6_000, 45e9) * jitter)
    assert (fit.status, fit.beta_bytes_per_s) == ("alpha_only", None)
    assert fit.alpha_ns == pytest.approx(6_000, rel=0.02)


def test_flights_that_their_thread_did_not_watch_tell_alpha_by_small_messages_and_never_beta() -> None:
    """A thread that posts sees completions late, those of large messages more often: the wire would look slow."""
    sizes = np.repeat([4_096, 1 << 20], 20)
    late = flights(sizes, 6_000, 45e9) + (sizes > 10_000) * 20_000
    fit = fit_path([], [], followed_bytes=sizes, followed_ns=late)
    assert (fit.status, fit.n, fit.beta_bytes_per_s) == ("alpha_only", 40, None)
    assert fit.alpha_ns == pytest.approx(6_000, rel=0.02)
    watched = fit_path(sizes, flights(sizes, 6_000, 45e9), followed_bytes=sizes, followed_ns=late)
    assert (watched.status, watched.beta_bytes_per_s) == ("both", pytest.approx(45e9, rel=1e-6))


def test_g7c_an_effective_bandwidth_curve_hides_part_of_its_latency() -> None:
    sizes = np.array([2.0**10, 2.0**14, 2.0**17, 2.0**20, 2.0**25, 2.0**28])
    effective = np.maximum(1e9, 50e9 * (1 - np.exp(-sizes / 65_536)))
    alpha, slope = fit_line(sizes, 4_500 + sizes / effective * 1e9)
    assert (round(alpha / 1_000, 2), round(1 / slope, 2)) == (5.51, 50.76)


def test_noise_of_real_latencies_misleads_least_squares_and_not_this() -> None:
    """45 GB/s with multiplicative noise and one message in five delayed: least squares says 25, this says 45."""
    generator = np.random.default_rng(7)
    sizes = np.repeat(SIZES, 600)
    durations = flights(sizes, 6_000, 45e9) * np.exp(0.1 * generator.standard_normal(len(sizes)))
    durations *= np.where(generator.random(len(sizes)) < 0.2, 5.0, 1.0)
    slope = np.polyfit(sizes, durations, 1)[0]
    fit = fit_path(sizes, durations, step=np.tile(np.arange(60), 70))
    assert round(1 / slope) == 25
    assert fit.beta_bytes_per_s == pytest.approx(45e9, rel=0.06)
    assert fit.alpha_ns == pytest.approx(6_000, rel=0.10)
    assert fit.beta_lo < fit.beta_bytes_per_s < fit.beta_hi


def test_a_pipelined_stream_shows_its_gap_at_small_sizes_and_beta_at_large_ones() -> None:
    sizes = np.repeat([1 << 10, 1 << 12, 1 << 20, 1 << 22], 5)
    spacing = np.maximum(400, sizes / 45)
    fit = fit_path((), (), pipelined_bytes=sizes, spacing_ns=spacing)
    assert (fit.status, fit.gap_ns) == ("beta_only", 400)
    assert fit.beta_bytes_per_s == pytest.approx(45e9)


def test_a_pipelined_stream_of_one_small_size_shows_its_gap_alone() -> None:
    fit = fit_path((), (), pipelined_bytes=np.full(9, 4096), spacing_ns=np.full(9, 300))
    assert (fit.status, fit.gap_ns, fit.beta_bytes_per_s) == ("gap_only", 300, None)


def test_a_pipelined_stream_of_one_middling_size_shows_nothing() -> None:
    """G5's 114 688 B every 5.334 µs: neither the wire nor the gap is known to be what limits it."""
    fit = fit_path((), (), pipelined_bytes=np.full(9, 114_688), spacing_ns=np.full(9, 5_334))
    assert (fit.status, fit.gap_ns, fit.beta_bytes_per_s) == ("unidentified", None, None)


def test_a_given_beta_stands_and_leaves_alpha_to_the_data() -> None:
    sizes = np.full(50, 114_688)
    fit = fit_path(sizes, flights(sizes, 6_000, 45e9), beta_bytes_per_s=45e9)
    assert (fit.status, fit.beta_bytes_per_s, fit.beta_source) == ("alpha_only", 45e9, "run_toml")
    assert fit.alpha_ns == pytest.approx(6_000, rel=1e-9)


@pytest.mark.parametrize(
    ("link", "expected", "half"),
    [
        ("nvlink4", (4.1, 57.2, 314.9, 438.2, 449.2), 450_000),
        ("pcie5", (2.0, 20.5, 49.8, 54.6, 55.0), 110_000),
        ("ndr", (1.3, 15.2, 43.7, 49.6, 50.0), 150_000),
    ],
)
def test_g13_links_reach_what_hockneys_model_says(link: str, expected: tuple[float, ...], half: int) -> None:
    alpha, beta = LINKS[link].alpha_ns, LINKS[link].beta_bytes_per_s
    sizes = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
    assert tuple(round(float(effective_bytes_per_s(s, alpha, beta)) / 1e9, 1) for s in sizes) == expected
    assert n_half_bytes(alpha, beta) == half


def traffic(sizes: list[int], alpha_post_ns: int, rtt_ns: int, bytes_per_ns: int) -> dict[str, list[dict[str, int]]]:
    """Single messages, one every 10 ms."""
    posts, done = [], []
    for index, size in enumerate(sizes):
        at = 10_000_000 * index
        posts.append({"enter_ns": at, "exit_ns": at + alpha_post_ns, "wr_id": index, "bytes": size})
        done.append({"seen_ns": at + alpha_post_ns + size // bytes_per_ns + rtt_ns, "wr_id": index})
    return {"rdma_posts": posts, "rdma_completions": done}


def links(**more: object) -> list[tuple[object, ...]]:
    connection = run(connect(**more), (*PAIRING, "_fit_samples", "_devices"))
    make_fits(connection)
    return connection.execute(
        """SELECT l.nic, l.beta_bytes_per_s, l.beta_source, l.rtt0_ns, f.status, round(f.alpha_ns), f.op, f.rtt0_ns
        FROM _links AS l LEFT JOIN fits AS f ON l.nic IS NOT DISTINCT FROM f.nic ORDER BY ALL"""
    ).fetchall()


def test_messages_become_fits_and_the_constants_of_their_nic() -> None:
    data = traffic([1 << 12, 1 << 16, 1 << 20, 1 << 24] * 4, 500, 4_000, 50)
    (row,) = links(**data)
    assert (row[0], row[2], row[4], row[6]) == ("mlx5_0", "fit", "both", "write")
    assert row[1] == pytest.approx(50e9, rel=1e-4)
    assert row[3] == pytest.approx(4_000, abs=10)
    assert row[5] == pytest.approx(4_500, abs=2)
    assert row[7] == row[3]


def test_what_run_toml_gives_is_taken_as_it_is() -> None:
    data = traffic([1 << 16] * 10, 500, 4_000, 50)
    assert links(**data, beta=40_000_000_000) == [
        ("mlx5_0", 40_000_000_000, "run_toml", 500 + 4_000 + 1_310 - 500 - 1_639, "alpha_only", 4_172, "write", 3_671)
    ]
    assert links(**data, beta=40_000_000_000, rtt0_ns=77)[0][3] == 77


def test_without_beta_a_nic_has_neither_beta_nor_base_round_trip() -> None:
    data = traffic([1 << 16] * 10, 500, 4_000, 50)
    assert [row[:5] for row in links(**data)] == [("mlx5_0", None, None, None, "unidentified")]


def test_a_nic_without_a_name_has_its_fit_and_constants_too() -> None:
    data = traffic([1 << 12, 1 << 16, 1 << 20, 1 << 24] * 4, 500, 4_000, 50)
    ((nic, beta, source, rtt0_ns, status, _, _, base_ns),) = links(**data, ranks=[{"nic": None}])
    assert (nic, source, status, base_ns) == (None, "fit", "both", rtt0_ns)
    assert beta == pytest.approx(50e9, rel=1e-4)
    assert rtt0_ns == pytest.approx(4_000, abs=10)


def test_a_message_is_alone_only_while_its_thread_posts_nothing_else() -> None:
    """Of three flights the second is followed by a post of its thread on another queue pair before it is seen."""
    starts = (0, 10_000, 12_000, 30_000)
    posts = [{"enter_ns": at, "exit_ns": at + 500, "wr_id": k, "qp": 1 + (k == 2)} for k, at in enumerate(starts)]
    done = [{"seen_ns": at + 5_000, "wr_id": k, "qp": 1 + (k == 2)} for k, at in enumerate(starts)]
    connection = run(connect(rdma_posts=posts, rdma_completions=done), (*PAIRING, "_fit_samples"))
    found = connection.execute("SELECT kind, count(*) FROM _fit_samples GROUP BY kind ORDER BY kind").fetchall()
    assert found == [("alone", 2), ("followed", 1)]


def test_the_interval_of_a_fitted_base_round_trip_reaches_below_the_least_seen() -> None:
    rests = [4_000, 4_010, *range(4_020, 4_220, 2)]
    data = traffic([1 << 12, 1 << 24] * 51, 500, 0, 50)
    for completion, rest in zip(data["rdma_completions"], rests, strict=True):
        completion["seen_ns"] += rest
    connection = run(connect(**data, beta=50_000_000_000), (*PAIRING, "_fit_samples", "_devices"))
    make_fits(connection)
    ((lo, base, hi),) = connection.execute("SELECT rtt0_lo_ns, rtt0_ns, rtt0_hi_ns FROM _links").fetchall()
    # The wire takes a whole nanosecond more than its share. Of 102 the 6th is the 5th percentile, the 10th its upper end.
    least, sixth, tenth = (sorted(rests)[k] - 1 for k in (0, 5, 9))
    assert (lo, base, hi) == (least - (sixth - least), sixth, tenth)
