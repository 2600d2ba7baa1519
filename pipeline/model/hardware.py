"""Peaks of GPUs and bandwidths of links, each with its source. Dense, never sparse; one way, never both."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Peak:
    """Dense peak of a GPU model for a dtype, TFLOP/s, and the document that says so."""

    gpu: str
    dtype: str
    tflops: Fraction
    source: str


_H100 = "NVIDIA H100 Tensor Core GPU datasheet (2023), SXM column; its figures are with sparsity, dense is half"
_H100_PCIE = "NVIDIA H100 Tensor Core GPU datasheet (2023), PCIe column; its figures are with sparsity, dense is half"
_H200 = "NVIDIA H200 Tensor Core GPU datasheet (2024), SXM column; its figures are with sparsity, dense is half"
_H800 = "H800 SXM has the compute of the H100 SXM; its NVLink is cut, not its tensor cores"
_A100 = "NVIDIA A100 Tensor Core GPU datasheet (2021), dense column"


def _p(gpu: str, dtype: str, tflops: str, source: str) -> Peak:
    return Peak(gpu, dtype, Fraction(tflops), source)


PEAKS: tuple[Peak, ...] = (
    *(_p(gpu, "bf16", "989.4", source) for gpu, source in (("H100 SXM", _H100), ("H200", _H200), ("H800 SXM", _H800))),
    *(_p(gpu, "fp16", "989.4", source) for gpu, source in (("H100 SXM", _H100), ("H200", _H200), ("H800 SXM", _H800))),
    *(_p(gpu, "fp8", "1978.9", source) for gpu, source in (("H100 SXM", _H100), ("H200", _H200), ("H800 SXM", _H800))),
    *(_p(gpu, "tf32", "494.7", source) for gpu, source in (("H100 SXM", _H100), ("H200", _H200), ("H800 SXM", _H800))),
    _p("H100 PCIe", "bf16", "756", _H100_PCIE),
    _p("H100 PCIe", "fp16", "756", _H100_PCIE),
    _p("H100 PCIe", "fp8", "1513", _H100_PCIE),
    _p("H100 PCIe", "tf32", "378", _H100_PCIE),
    _p("A100", "bf16", "312", _A100),
    _p("A100", "fp16", "312", _A100),
    _p("A100", "tf32", "156", _A100),
)

# Drivers name the model, not the board: "NVIDIA H100 80GB HBM3" is the SXM board, "NVIDIA H100 PCIe" says so.
_MODELS: tuple[tuple[str, str], ...] = (
    (r"H100.*(PCIe|NVL)", "H100 PCIe"),
    (r"H100", "H100 SXM"),
    (r"H200", "H200"),
    (r"H800.*PCIe", ""),
    (r"H800", "H800 SXM"),
    (r"A100", "A100"),
)


def gpu_model(gpu_name: str) -> str | None:
    """The model of `PEAKS` that a driver's GPU name (or a user's) means; None where it is unknown."""
    for pattern, model in _MODELS:
        if re.search(pattern, gpu_name, re.IGNORECASE):
            return model or None
    return None


def peak(gpu_name: str, dtype: str) -> Peak | None:
    """Dense peak of a GPU for a dtype, or None: then there is no MFU, and the report says why."""
    model = gpu_model(gpu_name)
    for candidate in PEAKS:
        if candidate.gpu == model and candidate.dtype == dtype.lower():
            return candidate
    return None


@dataclass(frozen=True)
class Link:
    """A link: payload bandwidth one way in bytes/s, base latency in ns."""

    name: str
    beta_bytes_per_s: int
    alpha_ns: int
    source: str


LINKS: dict[str, Link] = {
    link.name: link
    for link in (
        Link(
            "nvlink4",
            450_000_000_000,
            1_000,
            "NVLink 4: 18 links of 25 GB/s one way (H100 datasheet: 900 GB/s both ways)",
        ),
        Link("pcie5", 55_000_000_000, 2_000, "PCIe 5.0 x16: 63 GB/s raw one way; payload after headers"),
        Link("ndr", 50_000_000_000, 3_000, "NDR InfiniBand and 400 GbE: 400 Gbit/s one way"),
    )
}


def effective_bytes_per_s(size_bytes: int, alpha_ns: int, beta_bytes_per_s: int) -> Fraction:
    """Bandwidth of one message of `size_bytes`: S / (alpha + S/beta), Hockney's model, exact."""
    return Fraction(size_bytes) / (Fraction(alpha_ns, 10**9) + Fraction(size_bytes, beta_bytes_per_s))


def n_half_bytes(alpha_ns: int, beta_bytes_per_s: int) -> Fraction:
    """Size that reaches half of beta: alpha * beta (Hockney)."""
    return Fraction(alpha_ns * beta_bytes_per_s, 10**9)
