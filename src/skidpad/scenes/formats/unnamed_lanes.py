"""Signs of formats that give them a place and no lane (R19, R20): each belongs to the lane that passes nearest."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import derive
from skidpad.scenes.scene import SIGNAL_STOP

F64 = NDArray[np.float64]


def add_stop_signs(
    signs: Sequence[tuple[str, F64]], centres: Sequence[F64], keys: Sequence[Hashable], builder: SceneBuilder
) -> None:
    """Add a stop sign to the nearest lane of each place, counted as assumed; one with no lane near by is dropped.

    signs    (where in the file, (3,) f64 [m])
    centres  (n, 3)  f64 [m]  centre lines of the lanes, named by `keys`
    """
    for where, point in signs:
        lane = derive.nearest_lane(centres, point)
        if lane is None:
            builder.loss.count("dropped_stop_sign_without_lane", f"{where}: no lane within {derive.NEAREST_LANE_M:g} m")
            continue
        builder.loss.count("assumed_stop_sign_lane", f"{where}: the nearest lane, {keys[lane]!r}")
        builder.signal(SIGNAL_STOP, [keys[lane]], point=point)
