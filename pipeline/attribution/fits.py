"""Alpha, g and beta of a path, apart, each with what the data can say of it.

A message alone takes T = alpha + S/beta (Hockney 1994); a pipelined stream takes max(g, S/beta) a message (the gap of
LogGP, Alexandrov et al. 1995). Both are fitted robustly: a Theil-Sen start, then Huber's M-estimate on residuals
relative to the prediction, because the noise of a latency grows with it and has a long upper tail. Ordinary least
squares lets the few largest messages decide and misses beta by half. Intervals come from resampling whole steps.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline.model.hardware import LINKS, n_half_bytes
from pipeline.model.library import sql

if TYPE_CHECKING:
    import duckdb

Floats = NDArray[np.float64]

HUBER_K = 1.345
"""95 % efficiency at the normal distribution (Huber 1981)."""
MAD_TO_SIGMA = 1 / 0.6745
RESAMPLES = 200
MAX_POINTS = 1_024
"""Points that a fit works on; more are thinned evenly in each cell of step and size."""
MIN_POINTS = 6
REFERENCE_N_HALF_BYTES = float(n_half_bytes(LINKS["ndr"].alpha_ns, LINKS["ndr"].beta_bytes_per_s))
"""n½ of a present link: far below it a single size shows alpha, far above it beta (within 1/16)."""
FAR = 16


@dataclass(frozen=True)
class Fit:
    """A fitted path; what the data can't identify is None. Times in ns, sizes in bytes, beta one way.

    status: both, alpha_only, beta_only, gap_only or unidentified: what the data say, not what run.toml does.
    """

    n: int
    status: str
    alpha_ns: float | None = None
    alpha_lo: float | None = None
    alpha_hi: float | None = None
    gap_ns: float | None = None
    beta_bytes_per_s: float | None = None
    beta_lo: float | None = None
    beta_hi: float | None = None
    beta_source: str | None = None

    @property
    def n_half_bytes(self) -> float | None:
        """Size that reaches half of beta: alpha * beta."""
        if self.alpha_ns is None or self.beta_bytes_per_s is None:
            return None
        return self.alpha_ns * self.beta_bytes_per_s * 1e-9


def fit_line(size_bytes: ArrayLike, duration_ns: ArrayLike, weight: ArrayLike | None = None) -> tuple[float, float]:
    """(alpha_ns, ns per byte) of duration = alpha + size · slope: Theil-Sen, then Huber on relative residuals.

    Needs two distinct sizes. Durations are positive.
    """
    x, y, w = _arrays(size_bytes, duration_ns, weight)
    start = np.array(_theil_sen(x, y, w))
    return _pair(_huber_line(x, y, w[None, :], start, tolerance=1e-13, iterations=200)[0])


def fit_path(
    size_bytes: ArrayLike,
    duration_ns: ArrayLike,
    *,
    step: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    followed_bytes: ArrayLike = (),
    followed_ns: ArrayLike = (),
    followed_weight: ArrayLike | None = None,
    pipelined_bytes: ArrayLike = (),
    spacing_ns: ArrayLike = (),
    spacing_weight: ArrayLike | None = None,
    beta_bytes_per_s: float | None = None,
) -> Fit:
    """Alpha, gap and beta of a path, with 95 % intervals from resampling steps.

    size_bytes, duration_ns: messages that found nothing in flight, and whose thread did nothing until they were
    complete. followed: those whose thread posted again before it saw the completion: they look longer, large ones more
    often, so they tell only alpha, by small ones, and only where no others do. pipelined_bytes, spacing_ns: time per
    message of pipelined streams. beta_bytes_per_s: given by run.toml; then only alpha and gap are fitted. Deterministic.

    Identifiability. Beta needs sizes up to half of n½ (else S/beta hides in the noise of alpha), alpha sizes down to
    twice n½; either interval must be within a factor of two. One size alone shows alpha if it is far below the n½
    of present links and beta if far above, else nothing.
    """
    x, y, w = _arrays(size_bytes, duration_ns, weight)
    n = round(float(w.sum()))
    steps = np.zeros(len(x), np.int64) if step is None else np.asarray(step, np.int64)
    x, y, w, steps = _thin(x, y, w, steps)
    px, py, pw = _arrays(pipelined_bytes, spacing_ns, spacing_weight)
    n += round(float(pw.sum()))

    alpha, beta = (
        (_alone_with_beta(x, y, w, steps, beta_bytes_per_s), None) if beta_bytes_per_s else _alone(x, y, w, steps)
    )
    fx, fy, fw = _arrays(followed_bytes, followed_ns, followed_weight)
    n += round(float(fw.sum()))
    small = fx <= REFERENCE_N_HALF_BYTES / FAR
    if alpha is None and np.count_nonzero(small) >= MIN_POINTS:
        wire = 1e9 / beta_bytes_per_s if beta_bytes_per_s else 0.0
        alpha = _location((fy - fx * wire)[small], fw[small], np.zeros(np.count_nonzero(small), np.int64))
    known = beta_bytes_per_s or (beta[0] if beta else None)
    if known is None and (pipelined := _pipelined_beta(px, py, pw)) is not None:
        beta = pipelined
        known = pipelined[0]
    gap = _gap(px, py, pw, known)
    status = {
        (True, True): "both",
        (True, False): "alpha_only",
        (False, True): "beta_only",
        (False, False): "gap_only" if gap is not None else "unidentified",
    }[(alpha is not None, beta is not None)]
    given = beta_bytes_per_s is not None
    if given:
        beta = None
    return Fit(
        n=n,
        status=status,
        alpha_ns=alpha[0] if alpha else None,
        alpha_lo=alpha[1] if alpha else None,
        alpha_hi=alpha[2] if alpha else None,
        gap_ns=gap,
        beta_bytes_per_s=beta_bytes_per_s if given else beta[0] if beta else None,
        beta_lo=beta[1] if beta else None,
        beta_hi=beta[2] if beta else None,
        beta_source="run_toml" if given else "fit" if beta else None,
    )


def make_fits(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the tables `fits` and `_links` from `_fit_samples`, `_devices` and `run_config`."""
    given = connection.execute("SELECT beta_bytes_per_s FROM run_config").fetchone()
    beta = given[0] if given else None
    samples = connection.execute(
        """SELECT node, nic, peer_class, op, initiator, coalesce(step, -1) AS step, kind, bytes, duration_ns, weight
        FROM _fit_samples ORDER BY ALL"""
    ).fetchnumpy()
    connection.execute(
        """CREATE OR REPLACE TEMP TABLE fits (nic VARCHAR, peer_class VARCHAR, op VARCHAR, initiator VARCHAR, n BIGINT,
        status VARCHAR, alpha_ns DOUBLE, alpha_lo DOUBLE, alpha_hi DOUBLE, gap_ns DOUBLE, beta_bytes_per_s DOUBLE,
        beta_lo DOUBLE, beta_hi DOUBLE, n_half_bytes DOUBLE, rtt0_ns BIGINT, beta_source VARCHAR, node VARCHAR)"""
    )
    for (node, nic, peer_class, op, initiator), fit in _by_path(samples, beta):
        connection.execute(
            "INSERT INTO fits VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, NULL, $15, $16)",
            [
                nic,
                peer_class,
                op,
                initiator,
                fit.n,
                fit.status,
                fit.alpha_ns,
                fit.alpha_lo,
                fit.alpha_hi,
                fit.gap_ns,
                fit.beta_bytes_per_s,
                fit.beta_lo,
                fit.beta_hi,
                fit.n_half_bytes,
                fit.beta_source,
                node,
            ],
        )
    connection.execute(sql("_links"))
    connection.execute(
        """UPDATE fits SET rtt0_ns = l.rtt0_ns FROM _links AS l
        WHERE fits.node IS NOT DISTINCT FROM l.node AND fits.nic IS NOT DISTINCT FROM l.nic"""
    )


_Estimate = tuple[float, float, float]
"""Value, lower and upper end of its 95 % interval."""


def _by_path(samples: dict[str, Any], beta: float | None) -> list[tuple[tuple[str | None, ...], Fit]]:
    """Fit each path of a sorted sample."""
    names = ("node", "nic", "peer_class", "op", "initiator")
    count = len(samples["bytes"])
    if count == 0:
        return []
    # Not np.ma.filled(): for it None means numpy's own filler, the text "?".
    keys: list[NDArray[Any]] = [np.array(np.ma.asarray(samples[name]).tolist(), dtype=object) for name in names]
    changes = np.zeros(count, bool)
    changes[0] = True
    for column in keys:
        changes[1:] |= column[1:] != column[:-1]
    edges = [*np.flatnonzero(changes).tolist(), count]
    found = []
    for first, last in itertools.pairwise(edges):
        part = {name: np.ma.filled(np.asarray(samples[name][first:last])) for name in samples if name not in names}
        alone, followed, pipelined = (part["kind"] == kind for kind in ("alone", "followed", "pipelined"))
        fit = fit_path(
            part["bytes"][alone],
            part["duration_ns"][alone],
            step=part["step"][alone],
            weight=part["weight"][alone],
            followed_bytes=part["bytes"][followed],
            followed_ns=part["duration_ns"][followed],
            followed_weight=part["weight"][followed],
            pipelined_bytes=part["bytes"][pipelined],
            spacing_ns=part["duration_ns"][pipelined],
            spacing_weight=part["weight"][pipelined],
            beta_bytes_per_s=beta,
        )
        found.append((tuple(column[first] for column in keys), fit))
    return found


def _alone(x: Floats, y: Floats, w: Floats, steps: NDArray[np.int64]) -> tuple[_Estimate | None, _Estimate | None]:
    """Alpha and beta of single messages, each None where it can't be identified."""
    if len(x) < MIN_POINTS:
        return None, None
    if x.max() < 2 * x.min():
        return _one_size(x, y, w, steps)
    full = np.array(_theil_sen(x, y, w))
    full = _huber_line(x, y, w[None, :], full, tolerance=1e-13, iterations=200)[0]
    alpha, slope = _pair(full)
    resampled = _huber_line(x, y, _resampled(w, steps), full, tolerance=1e-5, iterations=8)
    alpha_lo, alpha_hi = np.percentile(resampled[:, 0], (2.5, 97.5)).tolist()
    slope_lo, slope_hi = np.percentile(resampled[:, 1], (2.5, 97.5)).tolist()
    slope_ok = slope > 0 and slope_lo > 0 and slope_hi <= 2 * slope_lo
    n_half = max(alpha, 0.0) / slope if slope > 0 else np.inf
    beta: _Estimate | None = None
    if slope_ok and x.max() >= n_half / 2:
        beta = (1e9 / slope, 1e9 / slope_hi, 1e9 / slope_lo)
    reaches_down = x.min() <= 2 * n_half if slope_ok else x.min() <= REFERENCE_N_HALF_BYTES / FAR
    if alpha > 0 and alpha_lo > 0 and alpha_hi <= 2 * alpha_lo and reaches_down:
        return (alpha, alpha_lo, alpha_hi), beta
    return None, beta


def _alone_with_beta(x: Floats, y: Floats, w: Floats, steps: NDArray[np.int64], beta: float) -> _Estimate | None:
    """Alpha where beta is given: the location of duration - S/beta."""
    if len(x) < MIN_POINTS:
        return None
    estimate = _location(y - x * 1e9 / beta, w, steps)
    return estimate if estimate[0] > 0 and estimate[1] > 0 and estimate[2] <= 2 * estimate[1] else None


def _one_size(x: Floats, y: Floats, w: Floats, steps: NDArray[np.int64]) -> tuple[_Estimate | None, _Estimate | None]:
    value, lo, hi = _location(y, w, steps)
    if x.max() <= REFERENCE_N_HALF_BYTES / FAR:
        return (value, lo, hi), None
    if x.min() >= REFERENCE_N_HALF_BYTES * FAR:
        value, lo, hi = _location(y / x, w, steps)
        return None, (1e9 / value, 1e9 / hi, 1e9 / lo)
    return None, None


def _pipelined_beta(x: Floats, y: Floats, w: Floats) -> _Estimate | None:
    """Beta from saturated streams: the largest sizes, over an octave, at one rate; or one size far above n½."""
    if len(x) == 0:
        return None
    per_byte = y / x
    top = x >= x.max() / 1.5
    rate = _weighted_median(per_byte[top], w[top])
    saturated = np.abs(per_byte - rate) <= 0.1 * rate
    wide = bool(saturated.any()) and x[saturated].max() >= 2 * x[saturated].min()
    if not (wide or x.max() >= REFERENCE_N_HALF_BYTES * FAR):
        return None
    chosen = saturated if wide else top
    rates = per_byte[chosen]
    return (
        1e9 / _weighted_median(rates, w[chosen]),
        1e9 / float(np.percentile(rates, 97.5)),
        1e9 / float(np.percentile(rates, 2.5)),
    )


def _gap(x: Floats, y: Floats, w: Floats, beta: float | None) -> float | None:
    """Time per message of streams that the wire does not limit (S/beta under half of it); None: there are none."""
    free = x * 1e9 / beta < y / 2 if beta else x <= REFERENCE_N_HALF_BYTES / FAR
    if not free.any():
        return None
    return _weighted_median(y[free], w[free])


def _arrays(x: ArrayLike, y: ArrayLike, w: ArrayLike | None) -> tuple[Floats, Floats, Floats]:
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    ws = np.ones(len(xs)) if w is None else np.asarray(w, np.float64)
    return xs, ys, ws


def _pair(line: Floats) -> tuple[float, float]:
    return float(line[0]), float(line[1])


def _thin(
    x: Floats, y: Floats, w: Floats, steps: NDArray[np.int64]
) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """At most about MAX_POINTS points: every k-th of each cell of step and quarter octave, with its share of weight."""
    if len(x) <= MAX_POINTS:
        return x, y, w, steps
    size = np.floor(4 * np.log2(np.maximum(x, 1))).astype(np.int64)
    cell = (steps - steps.min()) * 256 + size
    order = np.argsort(cell, kind="stable")
    cell = cell[order]
    first = np.flatnonzero(np.r_[True, cell[1:] != cell[:-1]])
    length = np.diff(np.r_[first, len(cell)])
    allowed = max(MAX_POINTS // len(first), 4)
    stride = np.maximum(1, -(-length // allowed))
    position = np.arange(len(cell)) - np.repeat(first, length)
    stride_of = np.repeat(stride, length)
    keep = order[position % stride_of == 0]
    # A kept point carries the weight of its cell, shared evenly.
    kept = -(-length // stride)
    share = np.add.reduceat(w[order], first) / kept
    return x[keep], y[keep], np.repeat(share, kept), steps[keep]


def _weighted_median(values: Floats, weight: Floats) -> float:
    order = np.argsort(values, kind="stable")
    cumulated = np.cumsum(weight[order])
    half = cumulated[-1] / 2
    at = int(np.searchsorted(cumulated, half * (1 - 1e-12)))
    if abs(cumulated[at] - half) <= 1e-12 * half and at + 1 < len(values):
        return float(values[order[at]] + values[order[at + 1]]) / 2
    return float(values[order[at]])


def _theil_sen(x: Floats, y: Floats, w: Floats) -> tuple[float, float]:
    """Median of the slopes between all pairs (between medians of sizes, where there are many points)."""
    if len(x) > 512:
        sizes, inverse = np.unique(np.floor(8 * np.log2(np.maximum(x, 1))), return_inverse=True)
        groups = [inverse == index for index in range(len(sizes))]
        gx = np.array([_weighted_median(x[g], w[g]) for g in groups])
        gy = np.array([_weighted_median(y[g], w[g]) for g in groups])
        gw = np.array([w[g].sum() for g in groups])
        if len(sizes) > 1:
            x, y, w = gx, gy, gw
    i, j = np.triu_indices(len(x), 1)
    different = x[i] != x[j]
    i, j = i[different], j[different]
    slope = _weighted_median((y[j] - y[i]) / (x[j] - x[i]), w[i] * w[j])
    return _weighted_median(y - slope * x, w), slope


def _huber_line(x: Floats, y: Floats, weights: Floats, start: Floats, *, tolerance: float, iterations: int) -> Floats:
    """Huber's line for each row of `weights` (replicates × points), by reweighted least squares; (replicates × 2)."""
    lines = np.repeat(start[None, :], len(weights), axis=0)
    floor = max(float(np.min(y)) * 1e-3, 1e-9)
    # x is scaled: sums of squares of bytes would lose the digits of alpha.
    unit = float(np.max(x))
    u = x / unit
    lines[:, 1] *= unit
    scale = np.ones((len(weights), 1))
    for iteration in range(iterations):
        predicted = np.maximum(lines[:, :1] + lines[:, 1:] * u, floor)
        residual = (y - predicted) / predicted
        if iteration == 0 or len(weights) == 1:
            # Replicates keep the scale that they start with: it is the full sample's, and medians are what costs.
            centre = np.median(residual, axis=1, keepdims=True)
            scale = np.maximum(MAD_TO_SIGMA * np.median(np.abs(residual - centre), axis=1, keepdims=True), 1e-12)
        huber = np.minimum(1.0, HUBER_K * scale / np.maximum(np.abs(residual), 1e-300))
        w = weights * huber / predicted**2
        total = w.sum(axis=1)
        mean_u, mean_y = (w * u).sum(axis=1) / total, (w * y).sum(axis=1) / total
        du = u - mean_u[:, None]
        spread = (w * du * du).sum(axis=1)
        slope = np.where(spread > 0, (w * du * (y - mean_y[:, None])).sum(axis=1) / np.maximum(spread, 1e-300), 0.0)
        following = np.stack([mean_y - slope * mean_u, slope], axis=1)
        done = bool(np.all(np.abs(following - lines) <= tolerance * (np.abs(lines) + floor)))
        lines = following
        if done:
            break
    lines[:, 1] /= unit
    return lines


def _resampled(w: Floats, steps: NDArray[np.int64]) -> Floats:
    """Weights of RESAMPLES replicates: whole steps drawn with replacement; without steps, single messages."""
    generator = np.random.default_rng(0)
    units, inverse = np.unique(steps, return_inverse=True)
    if len(units) < 3:
        units, inverse = np.arange(len(w)), np.arange(len(w))
    drawn = generator.multinomial(len(units), np.full(len(units), 1 / len(units)), size=RESAMPLES)
    replicates = w[None, :] * drawn[:, inverse]
    # A replicate must not come out empty, or of one size: the sample itself stands in with a sliver of weight.
    return replicates + 1e-9 * w[None, :]


def _location(y: Floats, w: Floats, steps: NDArray[np.int64]) -> _Estimate:
    """Weighted median of y with its interval."""
    value = _weighted_median(y, w)
    order = np.argsort(y, kind="stable")
    cumulated = np.cumsum(_resampled(w, steps)[:, order], axis=1)
    at = np.argmax(cumulated >= cumulated[:, -1:] / 2, axis=1)
    lo, hi = np.percentile(y[order][at], (2.5, 97.5)).tolist()
    return value, lo, hi
