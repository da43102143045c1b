"""How likely the logged values are under the simulated ones: histograms for quantities, Bernoulli for events.

The estimators are smoothed counts, so each likelihood is in (0, 1] and no log is infinite. What is compared with what,
and with which weight, is configuration: `realism.py`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
Index = NDArray[np.intp]

HISTOGRAM_PSEUDOCOUNT, BERNOULLI_PSEUDOCOUNT = 0.1, 0.001


class Bins(NamedTuple):
    """Range and number of bins of a histogram feature, in its unit."""

    low: float
    high: float
    number: int


def bin_edges(bins: Bins) -> F32:
    """(B + 1,) f32, low + i x step in float32. Not a linspace: a value on an edge changes its bin otherwise."""
    step = np.float32((np.float64(bins.high) - np.float64(bins.low)) / bins.number)
    return np.asarray(np.float32(bins.low) + np.arange(bins.number + 1, dtype=np.float32) * step, dtype=np.float32)


def bin_numbers(values: F32, bins: Bins) -> Index:
    """Bin of each value (...,) f32: clipped to the range, bins closed below, the last one above too. An undefined value
    counts in the top bin."""
    edges = bin_edges(bins)
    # Clip to the float32 edges: float32(0.628) lies above a float64 0.628, and such values would get lost.
    inside = np.clip(np.nan_to_num(values, nan=np.inf), edges[0], edges[-1])
    return np.asarray(np.minimum(np.searchsorted(edges, inside, side="right") - 1, bins.number - 1))


def histogram_log_likelihood(
    simulated: F32,
    logged: F32,
    bins: Bins,
    *,
    pooled_objects: bool = False,
    independent_steps: bool = True,
    pseudocount: float = HISTOGRAM_PSEUDOCOUNT,
) -> F64:
    """(E, F) f64, log-probability of each logged value under the histogram of its object.

    simulated          (R, E, F)  f32  all samples count, also those of rows that are not compared
    logged             (E, F)     f32
    pooled_objects     one histogram for all objects
    independent_steps  one histogram for all rows of an object; otherwise one for each row
    """
    _, objects, steps = simulated.shape
    groups = np.arange(objects * steps).reshape(objects, steps)
    if independent_steps:
        groups = groups // steps
    if pooled_objects:
        groups = groups % steps if not independent_steps else np.zeros_like(groups)
    count = int(groups.max()) + 1
    cells = groups[None] * bins.number + bin_numbers(simulated, bins)
    counts = np.bincount(cells.ravel(), minlength=count * bins.number).reshape(count, bins.number) + pseudocount
    log_share = np.log(counts / counts.sum(axis=1, keepdims=True))
    return np.asarray(log_share[groups, bin_numbers(logged, bins)])


def bernoulli_log_likelihood(
    simulated: Bool, logged: Bool, *, pooled_objects: bool = False, pseudocount: float = BERNOULLI_PSEUDOCOUNT
) -> F64:
    """(E,) f64, log-probability of what the log did, from the share of rollouts in which it happened.

    simulated       (R, E)  bool
    logged          (E,)    bool
    pooled_objects  one share for all objects
    """
    happened = simulated.sum(axis=0, dtype=np.float64)
    samples = np.full(len(happened), float(len(simulated)))
    if pooled_objects:
        happened, samples = np.full_like(happened, happened.sum()), np.full_like(samples, simulated.size)
    matching = np.where(logged, happened, samples - happened)
    return np.asarray(np.log((matching + pseudocount) / (samples + 2 * pseudocount)))


def likelihood(log_likelihood: F64, compared: Bool) -> float | None:
    """exp of one mean over everything compared: a mean per object first would be another number. None where nothing is.

    log_likelihood  (...,)  f64
    compared        (...,)  bool
    """
    return float(np.exp(log_likelihood[compared].mean())) if compared.any() else None
