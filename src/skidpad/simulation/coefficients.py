"""Coefficients: what may differ from agent to agent in one world, by episode (S95).

Weights of the reward, how a goal counts, and how a vehicle answers its commands. Off, every agent has the settings'
values; on, each draws its own, by its key, and a conditioned policy sees them mapped to [-1, 1]. The block `coef`
holds the values in rows 0 to 17 and what is seen of them in rows `SEEN` + 0 to 17: both stay for an episode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from skidpad.settings.schema import EnvSettings

F32 = NDArray[np.float32]

UNIFORM, LOG, MIXED = range(3)
"""How a coefficient is drawn: evenly; evenly in its logarithm; by a fair coin below 1 or above, evenly there (S42)."""


class Coefficient(NamedTuple):
    """One row: its range, and the key of `env.*` that says its value where nothing is drawn ("" = 1).

    may_be_log  drawn and seen on a log scale where the settings ask for it
    """

    name: str
    unit: str
    low: float
    high: float
    key: str
    may_be_log: bool = False
    mixed: bool = False


COEFFICIENTS: tuple[Coefficient, ...] = (
    Coefficient("goal radius", "m", 2.0, 12.0, "goal_radius"),
    Coefficient("goal speed", "m/s", 0.0, 20.0, "goal_speed"),
    Coefficient("collision", "1", 0.0, 3.0, "reward.collision"),
    Coefficient("off-road", "1", 0.0, 3.0, "reward.offroad"),
    Coefficient("comfort", "1/s", 1e-5, 0.1, "reward.comfort", may_be_log=True),
    Coefficient("lane align", "1/s", 2.5e-4, 2.5e-2, "reward.lane_align", may_be_log=True),
    Coefficient("velocity align", "s/m", 0.0, 1.0, "reward.velocity_align"),
    Coefficient("lane centre", "1/(m s)", 2.5e-4, 7.5e-3, "reward.lane_centre", may_be_log=True),
    Coefficient("centre bias", "m", -0.5, 0.5, "reward.centre_bias"),
    Coefficient("velocity", "1/s", 0.0, 5e-3, "reward.velocity"),
    Coefficient("reverse", "1/s", 2.5e-4, 7.5e-3, "reward.reverse", may_be_log=True),
    Coefficient("stop line", "1", 0.0, 1.0, "reward.stop_line"),
    Coefficient("timestep", "1/s", 0.0, 5e-5, "reward.timestep"),
    Coefficient("overspeed", "1/s", 0.0, 1.0, "reward.overspeed"),
    Coefficient("throttle", "1", 1 / 1.25, 1.25, "", mixed=True),
    Coefficient("steer", "1", 1 / 1.25, 1.25, "", mixed=True),
    Coefficient("acceleration", "1", 1 / 1.5, 1.5, "", mixed=True),
    Coefficient("speed", "1", 1 / 1.5, 1.5, "", mixed=True),
)
C_GOAL_RADIUS, C_GOAL_SPEED, C_COLLISION, C_OFFROAD, C_COMFORT, C_LANE_ALIGN, C_VELOCITY_ALIGN = range(7)
C_LANE_CENTRE, C_CENTRE_BIAS, C_VELOCITY, C_REVERSE, C_STOP_LINE, C_TIMESTEP, C_OVERSPEED = range(7, 14)
C_THROTTLE, C_STEER, C_ACCELERATION, C_SPEED = range(14, 18)
SEEN = 18
COEF_ROWS = 36

# Columns of the table that the kernel draws from.
LOW, HIGH, KIND, LOG_RATIO, DEFAULT, DEFAULT_SEEN = range(6)

V2_WEIGHTS = {"reward.collision": 0.5, "reward.offroad": 0.2}
"""`compat.reward = v2`: two weights, and every other is zero (S98)."""


def coefficient_table(settings: EnvSettings) -> F32:
    """(18, 6) f32: low, high, kind of draw, ln(high / low), value and seen value where nothing is drawn."""
    table = np.zeros((len(COEFFICIENTS), 6), np.float32)
    for row, one in enumerate(COEFFICIENTS):
        kind = MIXED if one.mixed else LOG if one.may_be_log and settings.log_coefficients else UNIFORM
        value = _default(one, settings)
        ratio = np.log(one.high / one.low) if kind == LOG else 0.0
        table[row] = one.low, one.high, kind, ratio, value, seen(one, value, kind)
    return table


def seen(coefficient: Coefficient, value: float, kind: int) -> float:
    """The value in [-1, 1], its ends being the ends of the range; what lies beyond them is shown as them."""
    low, high, value = coefficient.low, coefficient.high, min(max(value, coefficient.low), coefficient.high)
    if kind == LOG:
        low, high, value = (float(np.log(number)) for number in (low, high, value))
    return 2.0 * (value - low) / (high - low) - 1.0


def _default(one: Coefficient, settings: EnvSettings) -> float:
    if settings.compat.reward == "v2" and one.key.startswith("reward."):
        return V2_WEIGHTS.get(one.key, 0.0)
    value: object = settings
    for name in one.key.split(".") if one.key else ():
        value = getattr(value, name)
    return float(value) if one.key else 1.0  # type: ignore[arg-type]
