"""What some formats lack and the simulator needs, built from what they have (R10): road edges from lane borders, widths
from borders, stop lines from a point, velocities from positions.

Everything here is float64 and in the frame of the file; nothing is read from a Scene. Connectivity by geometry (R10 b)
is for formats without a lane graph and arrives with the first of them. Routes (R10 f) are `scenes/lanes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

INSIDE_M = 0.1  # an edge may lie this deep inside another lane before it is removed
SHORTEST_EDGE_M = 0.5
WIDTH_RANGE_M = (0.5, 20.0)


@dataclass(frozen=True, eq=False)
class LaneShape:
    """A lane as edges see it. The borders run in the direction of the lane.

    centre    (n, 3)  f64 [m]
    left      (m, 3)  f64 [m]
    right     (k, 3)  f64 [m]
    kind      lane type of the scene model, 0-9
    drivable  whether motor vehicles drive here
    """

    centre: F64
    left: F64
    right: F64
    kind: int
    drivable: bool


def edges_from_borders(lanes: Sequence[LaneShape]) -> list[tuple[F64, int]]:
    """Road edges (points (n, 3) f64 [m], element type): the lane borders that no other lane shares or covers (R10 a)."""
    raise NotImplementedError
