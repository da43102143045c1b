"""The reward of a step: a sum of terms, each of which is written down (S97, S98).

Events count once, however long a step lasts; rates are multiplied by its length. Weights that may differ by agent are
`coefficients`; the others are plain numbers of the settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from skidpad.settings.schema import EnvSettings

F32 = NDArray[np.float32]


class Term(NamedTuple):
    """One column of the reward terms: when it is not zero, and what it then is.

    v: signed speed [m/s]; theta, x: heading error and offset from the lane; w: the weight.
    """

    name: str
    kind: str
    formula: str


TERMS: tuple[Term, ...] = (
    Term("collision", "event", "-(w + 0.1 |v|) when a contact begins"),
    Term("off-road", "event", "-w when contact with an edge, or being off the road, begins"),
    Term("stop line", "event", "-w per red light or stop sign passed"),
    Term("goal", "event", "w per goal; 0 for the last of a set if passed too fast"),
    Term(
        "lane align",
        "rate",
        "w (min(cos theta, 0) + w_v min(v cos theta, 0) + 0.0025 (1 - |theta| / (pi/2))), on a lane",
    ),
    Term("lane centre", "rate", "-w ([cos theta > 0.5] |x - bias| - 0.05 exp(0.5 - |x - bias|)), on a lane"),
    Term("velocity", "rate", "w max(cos theta, 0) while v > 2.5 m/s, on a lane"),
    Term("comfort", "rate", "-w for each of |a_long| > 3, |a_lat| > 3 m/s^2, |jerk| > 5 m/s^3"),
    Term("overspeed", "rate", "-w while v > limit + 2 m/s"),
    Term("reverse", "rate", "-w while v < -0.01 m/s"),
    Term("timestep", "rate", "-w while |v| >= 0.2 m/s"),
    Term("not yielding", "event", "-w per failure to yield"),
    Term("progress", "event", "w per metre along a lane of the route"),
    Term("ade", "rate", "w times the distance [m] to the log"),
)
(
    T_COLLISION,
    T_OFFROAD,
    T_STOP_LINE,
    T_GOAL,
    T_LANE_ALIGN,
    T_LANE_CENTRE,
    T_VELOCITY,
    T_COMFORT,
    T_OVERSPEED,
    T_REVERSE,
    T_TIMESTEP,
    T_NOT_YIELDING,
    T_PROGRESS,
    T_ADE,
) = range(14)
TERM_COUNT = 14

IMPACT_WEIGHT = 0.1  # s/m, of the speed at a contact
V2_GOAL_AGAIN = 0.25  # `compat.reward = v2`: a goal reached by an agent that was put back to its start

RewardFunction = Callable[[F32, NDArray[np.uint32]], F32]
"""A custom reward: (terms (N, 14) f32, events (N,) u32) to (N,) f32, for all policy rows at once."""


def reward_parameters(settings: EnvSettings, dt: float) -> F32:
    """(8,) f32 the rows R_GOAL to R_ADE of the parameters of a world with steps of `dt` seconds."""
    reward, compat = settings.reward, settings.compat.reward
    each_step = float(reward.collision_each_step)
    if compat == "v2":
        return np.array([1.0, V2_GOAL_AGAIN, 0.0, 0.0, each_step, 0.0, 0.0, 0.0], np.float32)
    # v3 charges comfort and overspeed by the step: as if each lasted a second.
    comfort_s = 1.0 if compat == "v3" else dt
    return np.array(
        [
            reward.goal,
            reward.goal,
            IMPACT_WEIGHT,
            comfort_s,
            each_step,
            reward.not_yielding,
            reward.progress,
            reward.ade,
        ],
        np.float32,
    )
