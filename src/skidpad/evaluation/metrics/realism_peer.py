"""PufferDrive's realism value (`puffer/realism`), for people who migrate: other reductions under a similar name (Q31).

The exponential is taken per object and then averaged arithmetically, lights are left out and the remaining weights
divided by .95, time to collision counts for every type, positions are flat, minADE is per object. Never print it in one
table with `realism_*`. Its choice of objects (those with a goal) and its 81st row are not part of the arrays and not
reproduced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics.displacement_sets import ade, known, min_marginal
from skidpad.evaluation.metrics.realism import BUCKETS, Compared, compare, configuration, log_likelihoods
from skidpad.evaluation.rollouts import Lights, Log, RoadEdges, Rollouts, Task, check_rollouts

WEIGHT_SUM = 0.95
LEFT_OUT = "traffic_light_violation"


class PufferRealism(NamedTuple):
    """The peer's value, None with a reason where a term is missing; its buckets, and minADE per object [m]."""

    value: float | None
    reason: str | None
    buckets: dict[str, float | None]
    min_ade: float | None


def puffer_realism(
    rollouts: Rollouts, log: Log, edges: RoadEdges | None, lights: Lights | None = None, *, not_standard: bool = False
) -> PufferRealism:
    """The peer's realism value; `lights` are not read. Raises ProtocolError as `check_rollouts` does."""
    task = check_rollouts(rollouts, log, not_standard=not_standard)
    return puffer_score(compare(flattened(task), edges, None))


def flattened(task: Task) -> Task:
    """The same motion without height."""
    rollouts, log = task.rollouts, task.log
    return task._replace(
        rollouts=replace(rollouts, z=np.zeros_like(rollouts.z)), log=replace(log, z=np.zeros_like(log.z))
    )


def puffer_score(compared: Compared) -> PufferRealism:
    """The reductions alone, of a comparison without heights (`flattened`)."""
    # Every object is judged like a vehicle.
    valid = replace(compared.valid, vehicle=np.ones_like(compared.valid.vehicle))
    terms = {name: term for name, term in configuration("2025").terms.items() if name != LEFT_OUT}
    values: dict[str, float] = {}
    reason = None
    for name, term in terms.items():
        found = log_likelihoods(compared.simulated, compared.logged, valid, name, term)
        value = None if found is None else mean_of_exponentials(*found)
        if value is None:
            reason = reason or ("no_map" if found is None else "too_short")
        else:
            values[name] = value
    buckets = {
        bucket: _weighted([(terms[name].weight, values.get(name)) for name in names if name in terms])
        for bucket, names in BUCKETS.items()
    }
    total = sum(terms[name].weight * value for name, value in values.items()) / WEIGHT_SUM
    error, seen = ade(compared.task), known(compared.task)
    return PufferRealism(
        None if reason else total, reason, buckets, min_marginal(error[:, seen]) if seen.any() else None
    )


def mean_of_exponentials(log_likelihood: NDArray[np.float64], compared: NDArray[np.bool_]) -> float | None:
    """Arithmetic mean over objects of exp(mean log-likelihood of the object). None where no object has a value.

    log_likelihood  (E, F) or (E,)  f64
    compared        (E, F) or (E,)  bool
    """
    values = log_likelihood.reshape(len(log_likelihood), -1)
    mask = compared.reshape(len(compared), -1)
    count = mask.sum(axis=1)
    own = np.where(mask, values, 0.0).sum(axis=1)[count > 0] / count[count > 0]
    return float(np.exp(own).mean()) if len(own) else None


def _weighted(pairs: list[tuple[float, float | None]]) -> float | None:
    total = 0.0
    for weight, value in pairs:
        if value is None:
            return None
        total += weight * value
    return total / sum(weight for weight, _ in pairs)
