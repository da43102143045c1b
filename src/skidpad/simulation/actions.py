"""The action spaces: what one discrete index or one corner of the continuous box means in physical units."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


class ActionSpace(NamedTuple):
    """How one dynamics model reads actions.

    scale  (2,)    f32   physical value of the corner (1, 1) of the continuous box
    table  (K, 2)  f32   physical value of each discrete index
    units                of the two columns
    """

    scale: F32
    table: F32
    units: tuple[str, str]


def _constant(values: object) -> F32:
    array = np.array(values, np.float32)
    array.flags.writeable = False
    return array


# S44, S45: 7 accelerations by 9 steering angles, index = acceleration * 9 + steering.
CLASSIC_ACCELERATIONS = (-4.0, -2.667, -1.333, 0.0, 1.333, 2.667, 4.0)
CLASSIC_STEERING = (-0.667, -0.5, -0.333, -0.167, 0.0, 0.167, 0.333, 0.5, 0.667)
ACTIONS: dict[str, ActionSpace] = {
    "classic": ActionSpace(
        scale=_constant((4.0, 0.667)),
        table=_constant([(a, s) for a in CLASSIC_ACCELERATIONS for s in CLASSIC_STEERING]),
        units=("m/s^2", "rad"),
    ),
}
