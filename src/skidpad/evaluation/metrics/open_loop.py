"""Errors of a plan against what the expert then did (`nuplan_ols/1`), as nuPlan's open-loop score has them.

Plans are no part of a driving trace, so these are functions of arrays: a frame is a moment at which a plan was made,
its errors start one second ahead, at 1 Hz. Nothing here drives or plans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skidpad.evaluation.metrics.view import F64

HORIZONS_S = (3, 5, 8)
MISS_BOUNDS_M = (6.0, 8.0, 16.0)
MAX_MISS_SHARE = 0.3
MAX_DISPLACEMENT_M = 8.0
MAX_HEADING_RAD = 0.8


class OpenLoop(NamedTuple):
    """Errors of F plans at each horizon of HORIZONS_S.

    ade  (F, 3)  f64 [m]    mean displacement up to the horizon
    fde  (F, 3)  f64 [m]    displacement at the horizon
    ahe  (F, 3)  f64 [rad]  mean heading error up to the horizon
    fhe  (F, 3)  f64 [rad]  heading error at the horizon
    mde  (F, 3)  f64 [m]    largest displacement up to the horizon
    """

    ade: F64
    fde: F64
    ahe: F64
    fhe: F64
    mde: F64


def heading_error(a: F64, b: F64) -> F64:
    """(...,) f64 [rad], angle between two headings (...,) f64 [rad], in [0, pi]."""
    return np.asarray(np.abs(np.remainder(a - b + np.pi, 2 * np.pi) - np.pi))


def pose_error(xy: F64, heading: F64, expert_xy: F64, expert_heading: F64, *, heading_weight: float) -> F64:
    """(...,) f64 [m], distance plus `heading_weight` [m/rad] times the heading error.

    xy, expert_xy            (..., 2)  f64 [m]  centres of the boxes
    heading, expert_heading  (...,)    f64 [rad]
    """
    distance = np.hypot(*np.moveaxis(xy - expert_xy, -1, 0))
    return np.asarray(distance + heading_weight * heading_error(heading, expert_heading))


def open_loop_errors(xy: F64, heading: F64, expert_xy: F64, expert_heading: F64) -> OpenLoop:
    """Errors of F plans at 1 Hz, sample k being k + 1 seconds ahead.

    xy, expert_xy            (F, K, 2)  f64 [m]    K >= 8
    heading, expert_heading  (F, K)     f64 [rad]
    """
    distance = pose_error(xy, heading, expert_xy, expert_heading, heading_weight=0.0)
    turn = heading_error(heading, expert_heading)
    return OpenLoop(
        ade=_by_horizon(distance, np.mean),
        fde=_by_horizon(distance, _last),
        ahe=_by_horizon(turn, np.mean),
        fhe=_by_horizon(turn, _last),
        mde=_by_horizon(distance, np.max),
    )


def _last(error: F64, axis: int) -> F64:
    return np.asarray(np.take(error, -1, axis=axis))


def _by_horizon(error: F64, reduce: Callable[..., F64]) -> F64:
    return np.stack([reduce(error[:, :horizon], axis=1) for horizon in HORIZONS_S], axis=1)


def miss_shares(errors: OpenLoop) -> F64:
    """(3,) f64, share of frames whose largest displacement is above the bound of each horizon."""
    return np.asarray((errors.mde > np.array(MISS_BOUNDS_M)).mean(axis=0))


def open_loop_score(errors: OpenLoop) -> float:
    """nuPlan's open-loop score, 0 to 1, higher is better.

    Displacement errors have weight 1 each, heading errors 2; each is 1 - mean / bound, at least 0. All is 0 when at
    any horizon more than 30 % of the frames miss.
    """
    if np.any(miss_shares(errors) > MAX_MISS_SHARE):
        return 0.0
    terms = [
        (1, errors.ade, MAX_DISPLACEMENT_M),
        (1, errors.fde, MAX_DISPLACEMENT_M),
        (2, errors.ahe, MAX_HEADING_RAD),
        (2, errors.fhe, MAX_HEADING_RAD),
    ]
    weighted = sum(weight * max(0.0, 1 - float(error.mean()) / limit) for weight, error, limit in terms)
    return weighted / sum(weight for weight, _, _ in terms)
