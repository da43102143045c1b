"""Comfort and feasibility of the motion: simple per-step clauses, and nuPlan's smoothed series with its bounds.

nuPlan (Apache-2.0, Motional) filters before it judges; `nuplan_series` follows its published results to 0.01,
including an even filter window and a window argument that its code ignores.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import factorial

import numpy as np

from skidpad.evaluation.metrics.view import F64, AgentValues, Bool, CaseView, mean_over, measured, shared
from skidpad.scenes.scene import TYPE_VEHICLE

# nuPlan's comfort bounds in SI units; strict on both sides.
NUPLAN_BOUNDS: Mapping[str, tuple[float, float]] = {
    "longitudinal_acceleration": (-4.05, 2.40),
    "lateral_acceleration": (-4.89, 4.89),
    "jerk": (-8.37, 8.37),
    "longitudinal_jerk": (-4.13, 4.13),
    "yaw_rate": (-0.95, 0.95),
    "yaw_acceleration": (-1.93, 1.93),
}
MIN_SAMPLES = 4


@shared
def _violations(view: CaseView, *, longitudinal: float, lateral: float, jerk: float) -> F64:
    """(M, U) f64, how many of the three clauses each step violates."""
    along = view.ends("accel_long")
    change = np.zeros_like(along)
    # The jerk of a step needs the acceleration of the one before, and both must have been driven.
    change[:, 1:] = np.where(view.driven[:, 1:] & view.driven[:, :-1], np.diff(along) / view.dt, 0.0)
    clauses = (np.abs(along) > longitudinal, np.abs(view.ends("accel_lat")) > lateral, np.abs(change) > jerk)
    return np.asarray(sum(clause.astype(np.float64) for clause in clauses))


@shared
def comfort_violations(view: CaseView, *, longitudinal: float, lateral: float, jerk: float) -> AgentValues:
    """Mean number of violated clauses per active step, 0 to 3: accelerations [m/s^2] and longitudinal jerk [m/s^3]."""
    return mean_over(_violations(view, longitudinal=longitudinal, lateral=lateral, jerk=jerk), view.driven)


def comfort_rate(view: CaseView, *, longitudinal: float, lateral: float, jerk: float) -> AgentValues:
    """Share of active steps that violate none of the three clauses."""
    return mean_over(_violations(view, longitudinal=longitudinal, lateral=lateral, jerk=jerk) == 0, view.driven)


def infeasible_rate(
    view: CaseView, *, acceleration: float, radius: float, moving: float, turn_slack: float
) -> AgentValues:
    """Share of active steps that no car could have driven.

    A step is infeasible when its total acceleration is above `acceleration` [m/s^2]; when it turns tighter than
    `radius` [m] at more than `moving` [m/s]; or, slower than that, when its heading changes by `turn_slack` [rad]
    more than the distance moved explains at that radius. Only vehicles are judged.
    """
    total = np.hypot(view.ends("accel_long"), view.ends("accel_lat"))
    turn, explained = np.abs(view.turn), view.step_length / radius
    fast = np.abs(view.ends("speed")) > moving
    bad = (total > acceleration) | np.where(fast, turn > explained, turn > explained + turn_slack)
    vehicle = view.kinds("type")[view.case, view.agents] == TYPE_VEHICLE
    return mean_over(bad, view.driven, (view.never_active, "no_exposure"), (~vehicle, "not_applicable"))


@shared
def comfort_nuplan(view: CaseView, **bounds: float) -> AgentValues:
    """1 where all six series of every unbroken drive stay inside their bounds, else 0.

    `bounds` are `<series>_min` and `<series>_max` of each of NUPLAN_BOUNDS [SI].

    The samples are the states at the ends of driven steps. Drives of fewer than 4 samples are too short to filter.
    """
    limits = {name: (bounds[f"{name}_min"], bounds[f"{name}_max"]) for name in NUPLAN_BOUNDS}
    comfortable, judged = np.ones(view.count), np.zeros(view.count, dtype=bool)
    for start, stop, rows in drives(view.driven):
        if stop - start < MIN_SAMPLES:
            continue
        comfortable[rows] *= nuplan_comfortable(_series_of(view, start, stop), limits)
        judged[rows] = True
    return measured(comfortable, 1.0, (view.never_active, "no_exposure"), (~judged, "too_short"))


def _series_of(view: CaseView, start: int, stop: int) -> dict[str, F64]:
    """nuPlan's series of whoever drove from step `start` to before `stop`."""

    def make(view: CaseView) -> dict[str, F64]:
        rows = next(rows for first, last, rows in drives(view.driven) if (first, last) == (start, stop))
        taken = (view.ends(name)[rows, start:stop] for name in ("accel_long", "accel_lat", "heading"))
        return nuplan_series(np.arange(start, stop, dtype=np.float64) * view.dt, *taken)

    return view.once(("nuplan series", start, stop), make)


def drives(driven: Bool) -> list[tuple[int, int, F64]]:
    """Unbroken runs of driven steps as (first step, step after the last, agents that share it): filters run once for
    all of them."""
    edges = np.diff(np.pad(driven.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    agents, starts = np.nonzero(edges == 1)
    _, stops = np.nonzero(edges == -1)
    spans = sorted(set(zip(starts.tolist(), stops.tolist(), strict=True)))
    return [(start, stop, agents[(starts == start) & (stops == stop)]) for start, stop in spans]


def nuplan_series(time: F64, longitudinal: F64, lateral: F64, heading: F64) -> dict[str, F64]:
    """nuPlan's six comfort series, and the acceleration magnitude, as its code computes them.

    time          (n,)      f64 [s]
    longitudinal  (..., n)  f64 [m/s^2]  acceleration of the centre, ego frame
    lateral       (..., n)  f64 [m/s^2]
    heading       (..., n)  f64 [rad]

    Raises ValueError below 4 samples.
    """
    n = len(time)
    if n < MIN_SAMPLES:
        raise ValueError(f"{n} samples, expected at least {MIN_SAMPLES}")
    spacing = float(np.mean(np.diff(time)))

    def filtered(values: F64, window: int, order: int, derivative: int) -> F64:
        weights = filter_weights(n, min(window, n), order, derivative)
        return np.asarray(np.round(np.einsum("...i,ij->...j", values, weights) / spacing**derivative, 8))

    along, across, magnitude = (
        filtered(values, 8, 2, 0) for values in (longitudinal, lateral, np.hypot(longitudinal, lateral))
    )
    yaw = np.unwrap(heading)
    return {
        "acceleration": magnitude,
        "longitudinal_acceleration": along,
        "lateral_acceleration": across,
        "jerk": filtered(magnitude, 15, 2, 1),
        "longitudinal_jerk": filtered(along, 15, 2, 1),
        "lateral_jerk": filtered(across, 15, 2, 1),
        "yaw_rate": filtered(yaw, 5, 2, 1),
        # Order 3: a second derivative of order 2 would be constant over each window.
        "yaw_acceleration": filtered(yaw, 5, 3, 2),
    }


@lru_cache(maxsize=256)
def filter_weights(n: int, window: int, order: int, derivative: int) -> F64:
    """(n, n) f64, the Savitzky-Golay filter of n >= window samples as a matrix, which columns of samples are multiplied
    with: a polynomial is fitted to each window, and to the first and the last one for the samples at the ends, where
    SciPy does the same. Its own function would be asked anew for every drive."""
    half = window // 2
    weights = np.zeros((n, n))
    weights[:window, :half] = _fitted(window, order, derivative, tuple(range(half)))
    weights[n - window :, n - half :] = _fitted(window, order, derivative, tuple(range(window - half, window)))
    inner = np.arange(half, n - half)
    first = inner - (window - 1) // 2
    middle = _fitted(window, order, derivative, ((window - 1) / 2,))[:, 0]
    weights[first[:, None] + np.arange(window), inner[:, None]] = middle
    return weights


@lru_cache(maxsize=64)
def _fitted(window: int, order: int, derivative: int, places: tuple[float, ...]) -> F64:
    """(window, places) f64, weights of the samples 0, 1, ... of a window in the derivative of their polynomial."""
    fit = np.linalg.pinv(np.vander(np.arange(window, dtype=np.float64), order + 1, increasing=True))
    powers = np.zeros((len(places), order + 1))
    for k in range(derivative, order + 1):
        powers[:, k] = factorial(k) / factorial(k - derivative) * np.array(places) ** (k - derivative)
    return np.asarray((powers @ fit).T)


def nuplan_comfortable(series: Mapping[str, F64], bounds: Mapping[str, tuple[float, float]] = NUPLAN_BOUNDS) -> Bool:
    """(...,) bool, all six series strictly inside their bounds at every sample.

    series  each (..., n) f64 [SI], by name
    bounds  lowest and highest value of each series that is judged
    """
    inside = [np.all((series[name] > low) & (series[name] < high), axis=-1) for name, (low, high) in bounds.items()]
    return np.asarray(np.logical_and.reduce(inside))


def percentile_90(values: F64) -> float:
    """The sample nearest to rank 0.9 n, ties to the odd rank, as NumPy 1.23 (which nuPlan pins) chose it.

    NumPy itself has changed the rule since: for 5 samples it takes the 4th where this takes the 5th.
    """
    # Position counted from 0 is 0.9 n - 1.5, in tenths so that a tie is exact.
    floor, tenths = divmod(9 * len(values) - 15, 10)
    index = floor if tenths == 0 and floor % 2 == 0 else floor + 1
    return float(np.sort(values)[min(max(index, 0), len(values) - 1)])
