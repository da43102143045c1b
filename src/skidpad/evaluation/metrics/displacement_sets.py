"""Distance of a set of rollouts to the log and among themselves: ADE and minADE in their kinds, diversity (Q35, Q36).

`ade_official` is the value published beside realism scores: three-dimensional, over all rows of the log of which those
of the history have error 0, so it reads 12 % low for a full track and more for a short one. The others count future
rows only and are what the words say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.rollouts import Bool, Rollouts, Task

F64 = NDArray[np.float64]


def errors(task: Task, *, spatial: bool = False) -> F64:
    """(R, E, F) f64 [m], distance to the log in the plane, or in space; rows without log hold 0."""
    axes = ("x", "y", "z") if spatial else ("x", "y")
    square = np.zeros((task.rollouts.count, len(task.log.scored), task.rollouts.steps))
    for axis in axes:
        away = getattr(task.rollouts, axis)[:, task.log.scored].astype(np.float64)
        square += (away - _future(task, axis).astype(np.float64)) ** 2
    return np.asarray(np.sqrt(square) * _future(task, "valid"))


def _future(task: Task, name: str) -> Any:
    """(E, F), an array of the log for the scored objects after now."""
    return getattr(task.log, name)[task.log.scored, task.log.current_step + 1 :]


def known(task: Task) -> Bool:
    """(E,) bool, scored objects with any valid future row of log."""
    return np.asarray(_future(task, "valid").any(axis=1), dtype=bool)


def ade(task: Task, *, spatial: bool = False) -> F64:
    """(R, E) f64 [m], mean error over valid future rows; 0 where there is none: look at `known` first."""
    rows = _future(task, "valid").sum(axis=1)
    return np.asarray(errors(task, spatial=spatial).sum(axis=2) / np.maximum(rows, 1))


def fde(task: Task) -> F64:
    """(R, E) f64 [m], error at the last valid future row; 0 where there is none."""
    valid = _future(task, "valid")
    last = valid.shape[1] - 1 - valid[:, ::-1].argmax(axis=1)
    return np.asarray(np.take_along_axis(errors(task), last[None, :, None], axis=2)[:, :, 0])


def ade_official(task: Task) -> F64:
    """(R, E) f64 [m], sum of errors in space over valid future rows, divided by valid rows of the whole log."""
    rows = task.log.valid[task.log.scored].sum(axis=1)
    return np.asarray(errors(task, spatial=True).sum(axis=2) / np.maximum(rows, 1))


def min_joint(error: F64) -> float:
    """[m] of the best rollout as a whole: minimum over rollouts of the mean over objects.

    error  (R, E)  f64 [m]
    """
    return float(error.mean(axis=1).min())


def min_marginal(error: F64) -> float:
    """[m] with the best rollout of each object: never above `min_joint`.

    error  (R, E)  f64 [m]
    """
    return float(error.min(axis=0).mean())


def spread_ratio(error: F64) -> float | None:
    """(mean - min_joint) / mean, 0 for equal rollouts; None where the error is 0.

    error  (R, E)  f64 [m]
    """
    mean = float(error.mean())
    return (mean - min_joint(error)) / mean if mean > 0 else None


def diversity(rollouts: Rollouts, scored: NDArray[np.int32], *, final: bool = False) -> float | None:
    """[m], mean over scored objects of the mean distance between two rollouts, in the plane, over all rows or at the
    last one. None with a single rollout.

    scored  (E,)  i32
    """
    if rollouts.count < 2:
        return None
    rows = slice(-1, None) if final else slice(None)
    x, y = (getattr(rollouts, axis)[:, scored, rows].astype(np.float64) for axis in ("x", "y"))
    total, pairs = 0.0, 0
    for first in range(rollouts.count - 1):
        away = np.hypot(x[first + 1 :] - x[first], y[first + 1 :] - y[first])
        total += float(away.mean(axis=(1, 2)).sum())
        pairs += len(away)
    return total / pairs
