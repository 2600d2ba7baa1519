"""Offsets between nodes' clocks from collectives: happens-before, drift, and a constraint graph over all nodes.

A collective that synchronises its participants ends on no rank before it has begun on all. So every end bounds
every arrival: with o(n) what is added to node n's time to reach the run clock,

    end_j + o(j) >= arrival_i + o(i) + least latency        for all participants i, j.

Each pair of nodes gets an interval for o(j) - o(i) from its collectives; third nodes tighten it (shortest paths over
difference constraints); its middle is the offset and its half-width the error. Clocks drift: o(j) - o(i) is taken as
a straight line of at most `MAX_DRIFT_PPB`, and intervals are given at knots along the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from pipeline.model.errors import ClockContradiction

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Floats = npt.NDArray[np.float64]

MAX_DRIFT_PPB = 200_000
"""Bound of two clocks' relative drift: crystals are within 100 ppm each (PTP and NTP keep them far closer)."""
_UNBOUNDED = 1 << 60
_ROUNDING_NS = 2
"""Mapping a time rounds twice, on each of the two clocks by less than 1 ns."""


@dataclass(frozen=True)
class Interval:
    """What is known of an offset, ns: it lies in [lo, hi]."""

    lo: int
    hi: int

    @property
    def middle(self) -> Fraction:
        """The offset, ns."""
        return Fraction(self.lo + self.hi, 2)

    @property
    def half_width(self) -> Fraction:
        """Its error, ns."""
        return Fraction(self.hi - self.lo, 2)


@dataclass(frozen=True)
class Constraints:
    """What a pair's collectives say of o(second) - o(first): at least `lower` at `lower_at`, at most `upper`.

    All ns; times on the second node's clock. The arrays of a kind are parallel; neither is empty.
    """

    lower_at: Integers
    lower: Integers
    upper_at: Integers
    upper: Integers


@dataclass(frozen=True)
class NodeClock:
    """A node's map onto the run clock: t + offset_ns + (t - at_ns) * drift_ppb / 1e9, within ± error_ns.

    at_ns is on the node's own clock. `aligned` is False for a node that shares no collective with the reference.
    """

    node: str
    offset_ns: int
    at_ns: int
    drift_ppb: int
    error_ns: int
    aligned: bool = True


@dataclass(frozen=True)
class Fit:
    """All nodes' clocks, and the error bound of each pair of aligned nodes in each window between knots.

    errors_ns[w, i, j] bounds the error of a difference of times on nodes i and j (indices into `clocks`) in window
    [knots_ns[w], knots_ns[w+1]) of the run clock. statement_used: the stated clock error fitted in.
    """

    reference: str
    clocks: tuple[NodeClock, ...]
    knots_ns: tuple[int, ...]
    errors_ns: Integers
    statement_used: bool


def offset_interval(
    collectives: Sequence[tuple[int, int, int, int]], *, least_latency_ns: int = 0, pair: tuple[str, str] = ("i", "j")
) -> Interval:
    """The interval of t_i - t_j, two nodes' clocks without drift, from (arrival_i, end_i, arrival_j, end_j), ns.

    Raises ClockContradiction that names the pair.
    """
    import numpy as np

    arrival_i, end_i, arrival_j, end_j = np.asarray(collectives, dtype=np.int64).T
    constraints = Constraints(
        end_j, arrival_i - end_j + least_latency_ns, arrival_j, end_i - arrival_j - least_latency_ns
    )
    lo, hi = bounds(constraints, np.zeros(1, dtype=np.int64), pair, max_drift_ppb=0)
    return Interval(int(lo[0]), int(hi[0]))


def bounds(
    constraints: Constraints, knots_ns: Integers, pair: tuple[str, str], *, max_drift_ppb: int = MAX_DRIFT_PPB
) -> tuple[Integers, Integers]:
    """The least and greatest value, at each knot, of the lines that satisfy the constraints; rounded outwards.

    Raises ClockContradiction that names the pair where no line does.

    A line has two parameters, so what bounds it at an instant are at most two constraints (the vertices of a linear
    program in the plane): one and the greatest slope, two of one side around the instant, or one of each side before
    or after it. By the same count (Helly), three suffice to show that there is no line, and then the bounds cross at
    the instant of one of them.
    """
    import numpy as np

    at = np.concatenate([knots_ns, constraints.lower_at, constraints.upper_at]).astype(np.float64)
    origin = at.min()
    lower_at, upper_at = constraints.lower_at - origin, constraints.upper_at - origin
    lower, upper = constraints.lower.astype(np.float64), constraints.upper.astype(np.float64)
    greatest = _greatest(at - origin, upper_at, upper, lower_at, lower, max_drift_ppb * 1e-9)
    least = -_greatest(at - origin, lower_at, -lower, upper_at, -upper, max_drift_ppb * 1e-9)
    lo, hi = np.floor(least).astype(np.int64), np.ceil(greatest).astype(np.int64)
    if bool((lo > hi).any()):
        worst = int((lo - hi).max())
        raise _contradiction(pair, worst)
    return lo[: len(knots_ns)], hi[: len(knots_ns)]


def _greatest(at: Floats, upper_at: Floats, upper: Floats, lower_at: Floats, lower: Floats, max_slope: float) -> Floats:
    """The greatest value at each instant of a line below `upper`, above `lower`, and no steeper than max_slope."""
    import numpy as np

    found: Floats = (upper + max_slope * np.abs(at[:, None] - upper_at)).min(axis=1)
    if max_slope == 0:
        return found
    # Two of one side around the instant.
    first, second = np.nonzero(upper_at[:, None] < upper_at[None, :])
    slope = (upper[second] - upper[first]) / (upper_at[second] - upper_at[first])
    around = (upper_at[first] <= at[:, None]) & (upper_at[second] >= at[:, None])
    chord = np.where(around, upper[first] + slope * (at[:, None] - upper_at[first]), np.inf)
    # One of each side before or after it: from a lower point through an upper one, and on.
    apart = upper_at[:, None] - lower_at[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = (upper[:, None] - lower[None, :]) / np.abs(apart)
    onwards = np.where(apart > 0, rise, np.inf).min(axis=1)
    backwards = np.where(apart < 0, rise, np.inf).min(axis=1)
    past = at[:, None] - upper_at
    with np.errstate(invalid="ignore"):
        right = np.where((past > 0) & np.isfinite(onwards), upper + onwards * past, np.inf)
        left = np.where((past < 0) & np.isfinite(backwards), upper - backwards * past, np.inf)
    for more in (chord, right, left):
        found = np.minimum(found, more.min(axis=1, initial=np.inf))
    return found


def tighten(limits: Integers, nodes: Sequence[str]) -> Integers:
    """Shortest paths over all nodes: limits[i, j], the most that o(j) - o(i) can be, after what third nodes say.

    Raises ClockContradiction that names a pair on a cycle that can't be.
    """
    import numpy as np

    tight = limits.copy()
    np.fill_diagonal(tight, np.minimum(np.diagonal(tight), 0))
    for k in range(len(nodes)):
        np.minimum(tight, np.minimum(tight[:, k : k + 1] + tight[k : k + 1, :], _UNBOUNDED), out=tight)
    crossing = tight + tight.T
    if bool((crossing < 0).any()):
        np.fill_diagonal(crossing, 0)
        if not bool((crossing < 0).any()):
            crossing = limits + limits.T
            np.fill_diagonal(crossing, _UNBOUNDED)
        i, j = divmod(int(crossing.argmin()), len(nodes))
        raise _contradiction((nodes[i], nodes[j]), -int(crossing[i, j]))
    tight[tight > _UNBOUNDED // 2] = _UNBOUNDED
    return tight


def fit(
    nodes: Sequence[str],
    reference: str,
    constraints: Mapping[tuple[str, str], Constraints],
    knots_ns: Sequence[int],
    *,
    shifts_ns: Mapping[str, int] | None = None,
    stated_error_ns: int | None = None,
    max_drift_ppb: int = MAX_DRIFT_PPB,
) -> Fit:
    """All nodes' clocks against the reference's, from the constraints of pairs.

    knots_ns: two or more instants that span the run. Times of all nodes must be within about a second of each other:
    shifts_ns is what was added to each node's times to have them so. stated_error_ns: an NTP or PTP statement, the
    most by which two nodes' own clocks differ; it narrows what collectives say, connects no nodes, and gives way
    where it contradicts them.

    Raises ClockContradiction that names a pair.
    """
    import numpy as np

    index = {node: i for i, node in enumerate(nodes)}
    knots = np.asarray(knots_ns, dtype=np.int64)
    limits = np.full((len(knots), len(nodes), len(nodes)), _UNBOUNDED, dtype=np.int64)
    for (first, second), given in constraints.items():
        lo, hi = bounds(given, knots, (first, second), max_drift_ppb=max_drift_ppb)
        i, j = index[first], index[second]
        limits[:, i, j] = np.minimum(limits[:, i, j], hi)
        limits[:, j, i] = np.minimum(limits[:, j, i], -lo)
    tight = np.stack([tighten(each, nodes) for each in limits])
    statement_used = False
    if stated_error_ns is not None:
        shifts = np.asarray([(shifts_ns or {}).get(node, 0) for node in nodes], dtype=np.int64)
        stated = stated_error_ns + shifts[:, None] - shifts[None, :]
        try:
            tight = np.stack(
                [tighten(each, nodes) for each in np.where(tight < _UNBOUNDED, np.minimum(tight, stated[None]), tight)]
            )
            statement_used = True
        except ClockContradiction:
            pass

    home = index[reference]
    connected = (tight[0, home, :] < _UNBOUNDED) & (tight[0, :, home] < _UNBOUNDED)
    lines = np.zeros((len(knots), len(nodes)), dtype=np.float64)
    parameters: list[tuple[int, int, int]] = []
    for i in range(len(nodes)):
        if i == home or not connected[i]:
            parameters.append((0, int(knots[0]), 0))
            continue
        offset, at, drift = _line(knots, -tight[:, i, home], tight[:, home, i])
        parameters.append((offset, at, drift))
        lines[:, i] = offset + (knots - at) * (drift * 1e-9)
    applied = lines[:, None, :] - lines[:, :, None]
    both = connected[:, None] & connected[None, :]
    upper = np.where(both, tight, 0)
    lower = -np.swapaxes(upper, 1, 2)
    error = np.ceil(np.maximum(upper - applied, applied - lower)).astype(np.int64) + _ROUNDING_NS
    error = np.where(both, error, _UNBOUNDED)
    for i in range(len(nodes)):
        error[:, i, i] = 0
    windows = np.maximum(error[:-1], error[1:])
    clocks = tuple(
        NodeClock(
            node,
            *parameters[i],
            error_ns=int(windows[:, home, i].max()) if connected[i] else 0,
            aligned=bool(connected[i]),
        )
        for i, node in enumerate(nodes)
    )
    return Fit(reference, clocks, tuple(int(knot) for knot in knots), windows, statement_used)


def _line(knots: Integers, lo: Integers, hi: Integers) -> tuple[int, int, int]:
    """(offset, at, drift in ppb): through the middle of the narrowest interval, with the best slope of three, or none."""
    import numpy as np

    middle = (lo + hi) / 2
    narrowest = int((hi - lo).argmin())
    offset, at = int((int(lo[narrowest]) + int(hi[narrowest])) // 2), int(knots[narrowest])
    slopes = [0.0]
    for a, b in ((0, len(knots) - 1), (len(knots) // 4, len(knots) - 1 - len(knots) // 4)):
        if knots[b] > knots[a]:
            slopes.append(float((middle[b] - middle[a]) / (knots[b] - knots[a])))

    def worst(drift_ppb: int) -> float:
        line = offset + (knots - at) * (drift_ppb * 1e-9)
        return float(np.maximum(hi - line, line - lo).max())

    drift = min((round(slope * 1e9) for slope in slopes), key=lambda ppb: (worst(ppb), abs(ppb), ppb))
    # A drift that explains next to nothing is noise, and would stretch the node's own durations.
    return offset, at, drift if worst(drift) < 0.95 * worst(0) else 0


def _contradiction(pair: tuple[str, str], by_ns: int) -> ClockContradiction:
    first, second = sorted(pair)
    return ClockContradiction(
        f"the collectives of nodes {first} and {second} contradict each other by {by_ns} ns: on no pair of clocks does "
        "every one end after all have arrived",
        todo="some were matched wrongly: give the communicators in run.toml ([comm] groups), or check both captures",
    )
