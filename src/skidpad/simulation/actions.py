"""The action spaces: what one discrete index or one corner of the continuous box means in physical units.

A space is that of vehicles under one dynamics model. Cyclists and pedestrians, where they do not move like cars, read
the same box or the same indices through their own scales (S41).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.events import Controller
from skidpad.scenes.scene import TYPE_CYCLIST, TYPE_PEDESTRIAN
from skidpad.simulation.kernels import dynamics as model

if TYPE_CHECKING:
    from skidpad.settings.schema import EnvSettings

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]


class ActionSpace(NamedTuple):
    """How one dynamics model reads actions.

    negative, positive  (2,)    f32   physical size of the corners -1 and 1 of the continuous box
    box                 (K, 2)  f32   each discrete index as a point of the box
    factors                           choices of each part of a discrete action; their product is K
    units                             of the two physical columns
    """

    negative: F32
    positive: F32
    box: F32
    factors: tuple[int, ...]
    units: tuple[str, str]

    @property
    def table(self) -> F32:
        """(K, 2) f32 physical value of each discrete index."""
        return self.physical(self.box)

    def physical(self, box: F32) -> F32:
        """Physical values of points (..., 2) f32 of the box."""
        return np.asarray(box * np.where(box < 0, self.negative, self.positive), np.float32)

    def unit(self, physical: F32) -> F32:
        """Points of the box, or beyond it, for physical values (..., 2) f32."""
        return np.asarray(physical / np.where(physical < 0, self.negative, self.positive), np.float32)

    def shape(self, rows: int, discrete: bool) -> tuple[tuple[int, ...], type[np.generic]]:
        """(shape, dtype) of the actions of some rows."""
        if not discrete:
            return (rows, 2), np.float32
        return ((rows,) if len(self.factors) == 1 else (rows, len(self.factors))), np.int32

    def split(self, index: NDArray[np.int32]) -> NDArray[np.int32]:
        """Discrete actions of indices (n,) i32 in [0, K): the same, or their factors (n, F)."""
        if len(self.factors) == 1:
            return index
        return np.stack(np.unravel_index(index, self.factors), axis=1).astype(np.int32)


def _constant(values: object) -> F32:
    array = np.array(values, np.float32)
    array.flags.writeable = False
    return array


# S44, S45: ascending, index = first * (number of second) + second. A value is kept as the point of the box that makes
# it, so that a table of points drives a continuous world to the very bits of the discrete one (S46).
ACCELERATIONS = (-4.0, -2.667, -1.333, 0.0, 1.333, 2.667, 4.0)
STEERING = (-0.667, -0.5, -0.333, -0.167, 0.0, 0.167, 0.333, 0.5, 0.667)
V2_STEERING = (-1.0, -0.833, -0.667, -0.5, -0.333, -0.167, 0.0, 0.167, 0.333, 0.5, 0.667, 0.833, 1.0)
LONGITUDINAL_JERKS = (-15.0, -4.0, 0.0, 4.0)
LATERAL_JERKS = (-4.0, 0.0, 4.0)


def _space(
    first: tuple[float, ...], second: tuple[float, ...], units: tuple[str, str], *, factored: bool = False
) -> ActionSpace:
    negative, positive = _constant((-first[0], -second[0])), _constant((first[-1], second[-1]))
    values = _constant([(a, b) for a in first for b in second])
    box = np.asarray(values / np.where(values < 0, negative, positive), np.float32)
    box.flags.writeable = False
    factors = (len(first), len(second)) if factored else (len(first) * len(second),)
    return ActionSpace(negative, positive, box, factors, units)


_CLASSIC, _JERK = ("m/s^2", "rad"), ("m/s^3", "m/s^3")
SPACES: dict[tuple[str, str], ActionSpace] = {
    ("classic", "none"): _space(ACCELERATIONS, STEERING, _CLASSIC),
    ("classic", "v2"): _space(ACCELERATIONS, V2_STEERING, _CLASSIC),
    ("classic", "v2b"): _space(ACCELERATIONS, V2_STEERING, _CLASSIC),
    ("jerk", "none"): _space(LONGITUDINAL_JERKS, LATERAL_JERKS, _JERK),
    ("jerk", "v2"): _space(LONGITUDINAL_JERKS, LATERAL_JERKS, _JERK, factored=True),
    ("jerk", "v2b"): _space(LONGITUDINAL_JERKS, LATERAL_JERKS, _JERK),
}
"""By `dynamics` and `compat.dynamics`."""

_VEHICLE_MODELS = {
    ("classic", "none"): model.CLASSIC,
    ("classic", "v2"): model.CLASSIC_V2,
    ("classic", "v2b"): model.CLASSIC_V2B,
    ("jerk", "none"): model.JERK,
    ("jerk", "v2"): model.JERK_V2,
    ("jerk", "v2b"): model.JERK_V2,
}


def action_space(settings: EnvSettings) -> ActionSpace:
    """The space of vehicles under these settings."""
    return SPACES[settings.dynamics, settings.compat.dynamics]


def action_scales(settings: EnvSettings) -> F32:
    """(3, 2, 2) f32 physical size of the corners (negative, positive) for vehicles, cyclists and pedestrians.

    On a bicycle or on foot the first command is an acceleration [m/s^2], the second a steering angle [rad] or a
    heading rate [rad/s], whatever vehicles read.
    """
    space, classic = action_space(settings), SPACES["classic", "none"]
    walking = _constant((classic.positive[0], model.WALKING_RATE))
    return np.array(
        [(space.negative, space.positive), (classic.negative, classic.positive), (walking, walking)], np.float32
    )


def models(settings: EnvSettings, controller: U8, kind: U8) -> U8:
    """(A,) u8 how each agent moves: `kernels.dynamics` codes.

    controller  (A,)  u8   skidpad.scenes.events.Controller
    kind        (A,)  u8   type as in the scene

    Traffic that is driven by a planner moves by the classic model, whose commands the planners give, cyclists and
    pedestrians among it at most as a cyclist can. Under `compat.idm = rails` no dynamics move what IDM drives.
    """
    car_for_all = settings.compat.types == "car"
    vehicle = (kind != TYPE_CYCLIST) & (kind != TYPE_PEDESTRIAN) | car_for_all
    policy = controller == Controller.POLICY
    small = np.where(policy & (kind == TYPE_PEDESTRIAN), model.PEDESTRIAN, model.CYCLIST)
    driven = np.where(policy, _VEHICLE_MODELS[settings.dynamics, settings.compat.dynamics], model.CLASSIC)
    found = np.where(vehicle, driven, small).astype(np.uint8)
    if settings.compat.idm == "rails":
        found[controller == Controller.IDM] = model.RAILS
    return found
