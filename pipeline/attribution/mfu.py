"""MFU and the waterfall in exact rational arithmetic; POP efficiencies.

MFU = F / (P * sum of T): F the model's FLOPs (no recompute), P the dense peak, T wall time over all ranks. Points of
a category are 100 * its time / wall time, so MFU, compute_loss and the other categories add up to 100 exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from math import lcm

from pipeline.model.categories import MFU_ROWS, Evidence
from pipeline.model.hardware import peak
from pipeline.model.run import HardwareSection, ModelSection

MFU, COMPUTE_LOSS = MFU_ROWS


@dataclass(frozen=True)
class Flops:
    """FLOPs of one step of the whole job, and how they are known."""

    per_step: Fraction
    basis: str


def exact(number: int | float) -> Fraction:
    """A number of run.toml as it is written there, not as binary floating point has it."""
    return Fraction(str(number))


def model_flops(model: ModelSection) -> Flops | None:
    """FLOPs of a training step without recompute: as given, else 6 * N_active * tokens + attention; None: unknown.

    Attention is 6 * L * h * s FLOPs a token with a causal mask and 12 * L * h * s without: twice the forward pass's
    2 (or 4) for the backward pass (Chowdhery et al. 2022, PaLM, appendix B, counts the full one). Mixture of experts:
    `params_active` counts the parameters that a token meets.
    """
    if model.flops_per_step is not None:
        return Flops(exact(model.flops_per_step), "flops_per_step of run.toml, of the whole job")
    if model.params_active is None or model.tokens_per_step is None:
        return None
    dense = 6 * model.params_active * model.tokens_per_step
    if model.layers is None or model.hidden is None or model.seq_len is None:
        return Flops(Fraction(dense), "6 N_active tokens; attention is left out: it needs layers, hidden and seq_len")
    factor, kind = (6, "causal") if model.causal else (12, "full")
    attention = factor * model.layers * model.hidden * model.seq_len * model.tokens_per_step
    return Flops(Fraction(dense + attention), f"6 N_active tokens + {factor} L h s tokens ({kind} attention)")


@dataclass(frozen=True)
class RankPeak:
    """Dense peak of a rank's GPU in FLOP/s, and its source; None with the reason in its place."""

    flops_per_s: Fraction | None
    source: str


def rank_peak(hardware: HardwareSection, gpu_name: str | None) -> RankPeak:
    """Peak of a rank: `peak_tflops` of run.toml, else the table's for the GPU (run.toml's name before the driver's)."""
    if hardware.peak_tflops is not None:
        return RankPeak(exact(hardware.peak_tflops) * 10**12, "peak_tflops of run.toml")
    name = hardware.gpu or gpu_name
    if name is None:
        return RankPeak(None, "the captures do not name the GPU; give [hardware] gpu or peak_tflops in run.toml")
    found = peak(name, hardware.dtype)
    if found is None:
        return RankPeak(None, f"no dense {hardware.dtype} peak is known of {name!r}; give [hardware] peak_tflops")
    return RankPeak(found.tflops * 10**12, f"{found.gpu} {found.dtype} dense: {found.source}")


def ideal_ns(flops: Fraction, ranks: int, peak_flops_per_s: Fraction) -> Fraction:
    """Time of one rank's share of a step at the peak, ns: F / ranks / P."""
    return flops / ranks / peak_flops_per_s * 10**9


@dataclass(frozen=True)
class Cell:
    """Time of a category, by evidence, in one scope."""

    category: str
    evidence: str
    attributed_ns: int


@dataclass(frozen=True)
class Point:
    """A row of the waterfall: `numerator / denominator` MFU points, in lowest terms."""

    category: str
    evidence: str
    points: Fraction
    attributed_ns: int | None


class IdealExceedsCompute(ValueError):
    """The peak would not suffice for the FLOPs in the time that kernels ran: FLOPs, peak or dtype is wrong."""


def waterfall(cells: Iterable[Cell], wall_ns: int, ideal: Fraction | None) -> list[Point]:
    """Points of one scope, 100 in all.

    wall_ns: the scope's wall time over all its ranks and steps. ideal: its ideal compute time, ns; None leaves
    compute as it is. Raises IdealExceedsCompute where there would be a negative compute_loss.
    """
    found: list[Point] = []
    compute_ns = 0
    for cell in cells:
        if cell.category == "compute" and ideal is not None:
            compute_ns += cell.attributed_ns
        elif cell.attributed_ns:
            points = Fraction(100 * cell.attributed_ns, wall_ns)
            found.append(Point(cell.category, cell.evidence, points, cell.attributed_ns))
    if ideal is None:
        return found
    if ideal > compute_ns:
        raise IdealExceedsCompute(
            f"the step's FLOPs take {float(ideal) / 1e6:.3f} ms at the peak, but kernels ran for {compute_ns / 1e6:.3f} ms"
        )
    # FLOPs and peak are constants of run.toml and of a data sheet, whatever the times are.
    level = Evidence.MODELLED.value
    return [
        Point(MFU, level, 100 * ideal / wall_ns, None),
        Point(COMPUTE_LOSS, level, 100 * (compute_ns - ideal) / wall_ns, None),
        *found,
    ]


def common_ideal(ideals: Mapping[int, Fraction]) -> tuple[dict[int, int], int]:
    """Ideal times of the ranks as integers over one denominator."""
    denominator = lcm(*(ideal.denominator for ideal in ideals.values()))
    return {rank: int(ideal * denominator) for rank, ideal in ideals.items()}, denominator


@dataclass(frozen=True)
class PopEfficiencies:
    """Multiplicative efficiencies of the POP model (https://pop-coe.eu/node/69), and the points that each costs.

    parallel = load_balance * communication; communication = serialisation * transfer, which are None without the
    time on an ideal network.
    """

    load_balance: Fraction
    communication: Fraction
    serialisation: Fraction | None
    transfer: Fraction | None
    parallel: Fraction
    transfer_factors: tuple[Fraction, ...] = ()
    """transfer as a product: of each part of the network given back in turn, and of what is left, last."""

    def points(self) -> dict[str, Fraction]:
        """Points of 100: useful time and what each inefficiency takes, in all 100."""
        useful = 100 * self.parallel
        found = {"useful": useful, "load_balance": 100 * self.communication - useful}
        if self.serialisation is None or self.transfer is None:
            return {**found, "communication": 100 - 100 * self.communication}
        return {
            **found,
            "serialisation": 100 * self.transfer - 100 * self.communication,
            "transfer": 100 - 100 * self.transfer,
        }


def pop_efficiencies(
    useful_ns: Sequence[int], wall_ns: int, ideal_network_ns: Sequence[int] = ()
) -> PopEfficiencies | None:
    """POP efficiencies of ranks with these useful (compute) times over a common wall time, all in ns.

    ideal_network_ns: wall time if communication took no time but ranks still waited for each other, then with parts of
    that time given back; a factor of transfer efficiency is the time before over the time with it. None where nothing
    useful was done.
    """
    if not useful_ns or wall_ns <= 0 or max(useful_ns) <= 0:
        return None
    longest = max(useful_ns)
    mean = Fraction(sum(useful_ns), len(useful_ns))
    # Clock errors and the edges of steps may put a time a little outside its neighbours.
    times = [*accumulate([min(max(time, longest), wall_ns) for time in ideal_network_ns], max), wall_ns]
    ideal = times[0] if ideal_network_ns else None
    return PopEfficiencies(
        load_balance=mean / longest,
        communication=Fraction(longest, wall_ns),
        serialisation=None if ideal is None else Fraction(longest, ideal),
        transfer=None if ideal is None else Fraction(ideal, wall_ns),
        parallel=mean / wall_ns,
        transfer_factors=tuple(Fraction(before, after) for before, after in pairwise(times)),
    )
