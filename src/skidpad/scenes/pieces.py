"""What a builder has collected, before it becomes arrays: lanes, lines, edges, areas, signals and tracks, in float64.

Lanes are named by the reader's keys until they are resolved to numbers (`assembly.py`).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes import polyline
from skidpad.scenes.polyline import F64
from skidpad.scenes.scene import AREA_UNKNOWN, EDGE_UNKNOWN


@dataclass(eq=False)
class LanePiece:
    """One lane on its way into a road map.

    centre       (n, 3)  f64 [m]
    width        (n,)    f64 [m]
    left, right  (m, 3)  f64 [m]  borders, None where the file has none
    """

    key: Hashable
    centre: F64
    width: F64
    left: F64 | None
    right: F64 | None
    kind: int
    source_id: int
    speed_limit: float
    drivable: bool
    junction: int
    flags: int

    @property
    def length(self) -> float:
        return float(polyline.arc_lengths(self.centre)[-1])

    @property
    def name(self) -> str:
        return f"lane {self.key!r}"

    def border(self, left: bool) -> F64:
        """The border on one side (m, 3) f64 [m]; half a width away from the centre line where the file has none."""
        given = self.left if left else self.right
        return given if given is not None else polyline.shifted(self.centre, self.width * (0.5 if left else -0.5))


@dataclass(eq=False)
class OtherPiece:
    """A line, edge or area on its way into a road map: points (n, 3) f64 [m]."""

    points: F64
    kind: int
    source_id: int

    @property
    def is_edge(self) -> bool:
        return EDGE_UNKNOWN <= self.kind < AREA_UNKNOWN

    @property
    def name(self) -> str:
        what = "area" if self.kind >= AREA_UNKNOWN else "edge" if self.is_edge else "line"
        return f"{what} {self.source_id}"


@dataclass(eq=False)
class SignalPiece:
    """One signal on its way into a scene, in the local frame.

    keys          the reader's names of the controlled lanes
    lanes         their lane numbers, filled in when the lanes are resolved
    line          (2, 3)  f64 [m]  or None
    point         (3,)    f64 [m]  or None; with neither, the line is at the end of the lane
    heading       [rad]   or None = of the first controlled lane at the line
    states        (T,)    u8  or None = unknown throughout
    cycle_offset  [s]
    program       (duration [s], state) of each phase
    """

    kind: int
    keys: tuple[Hashable, ...]
    line: F64 | None
    point: F64 | None
    heading: float | None
    junction: int
    phase: int
    states: NDArray[np.uint8] | None
    cycle_offset: float
    program: list[tuple[float, int]]
    lanes: list[int] = field(default_factory=list)


@dataclass(eq=False)
class TrackRows:
    """One track on its way into a scene.

    source_id, type, subtype, expert  as in `Tracks`
    values  ROW_FIELDS -> (T,)  f64   world frame
    valid   (T,)  bool
    has_velocity  does the file give vx and vy
    goal    (3,)  f64 [m]  world frame, None = the last valid position
    """

    source_id: int
    type: int
    subtype: int
    expert: bool
    values: dict[str, F64]
    valid: NDArray[np.bool_]
    goal: F64 | None
    has_velocity: bool

    @property
    def name(self) -> str:
        return f"track {self.source_id}"


@dataclass(eq=False)
class Pieces:
    """Everything collected for one scene.

    lane_of_key        key -> position in `lanes`
    links, neighbours  pairs of keys in the order they were named, as keys of a dict: each counts once
    """

    lanes: list[LanePiece] = field(default_factory=list)
    lane_of_key: dict[Hashable, int] = field(default_factory=dict)
    links: dict[tuple[Hashable, Hashable], None] = field(default_factory=dict)
    neighbours: dict[tuple[Hashable, Hashable], None] = field(default_factory=dict)
    others: list[OtherPiece] = field(default_factory=list)
    signals: list[SignalPiece] = field(default_factory=list)
    tracks: list[TrackRows] = field(default_factory=list)
