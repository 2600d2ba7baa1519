"""Peaks and links: values of the data sheets, and what must not be taken for them."""

from __future__ import annotations

import pytest

from pipeline.model.hardware import LINKS, effective_bytes_per_s, n_half_bytes, peak


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4),
        ("NVIDIA H200", "bf16", 989.4),
        ("NVIDIA H800", "fp8", 1978.9),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA H100 PCIe", "bf16", 756),
    ],
)
def test_a_peak_is_dense_and_by_dtype(name: str, dtype: str, tflops: float) -> None:
    found = peak(name, dtype)
    assert found is not None
    assert tflops == float(found.tflops)
    assert found.source


def test_an_unknown_gpu_has_no_peak() -> None:
    assert peak("TITAN RTX", "bf16") is None


@pytest.mark.parametrize(
    ("achieved", "mfu"), [(430, 43.46), (400, 40.43), (380, 38.41)], ids=["G9a-430", "G9a-400", "G9a-380"]
)
def test_g9a_mfu_against_the_dense_peak(achieved: int, mfu: float) -> None:
    found = peak("H100 SXM", "bf16")
    assert found is not None
    assert mfu == round(float(100 * achieved / found.tflops), 2)


G13 = {
    "nvlink4": (4.1, 57.2, 314.9, 438.2, 449.2, 450_000),
    "pcie5": (2.0, 20.5, 49.8, 54.6, 55.0, 110_000),
    "ndr": (1.3, 15.2, 43.7, 49.6, 50.0, 150_000),
}


@pytest.mark.parametrize("link", sorted(G13))
def test_g13_effective_bandwidth_by_size(link: str) -> None:
    alpha, beta = LINKS[link].alpha_ns, LINKS[link].beta_bytes_per_s
    sizes = [4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20]
    effective = [round(float(effective_bytes_per_s(size, alpha, beta)) / 1e9, 1) for size in sizes]
    assert list(G13[link][:5]) == effective
    assert G13[link][5] == n_half_bytes(alpha, beta)
