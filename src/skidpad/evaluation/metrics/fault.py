"""Whose fault a contact is, by nuPlan's rule (`fault.nuplan/1`), and how hard it was.

Everything here is geometry of two boxes at one moment, so it can be held against nuPlan's published fixtures. The
other rule, `fault.skidpad/1`, is an event bit of the simulator and needs no code here. Boxes are given by centre,
heading and size; the rear axle sits where it does in nuPlan's car, in proportion to the length.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.evaluation.metrics.view import F64, Bool
from skidpad.scenes.scene import RoadMap

# nuPlan's car: 5.176 m long, its rear axle 1.461 m behind the centre.
REAR_AXLE_SHARE = 1.461 / 5.176
STOPPED = 0.05  # m/s, nuPlan
BEHIND = np.deg2rad(150.0)  # nuPlan
# A swept contact is judged at its first moment, when boxes meet without overlapping; this much [m] still is a meeting.
TOUCH = 0.05


class Body(NamedTuple):
    """A box in motion: centre x, y [m], heading [rad], length, width [m], signed speed along the heading [m/s]."""

    x: float
    y: float
    heading: float
    length: float
    width: float
    speed: float


class ContactType(StrEnum):
    """nuPlan's classes of contact, in the order in which they are tried."""

    STOPPED_EGO = "stopped_ego"
    STOPPED_TRACK = "stopped_track"
    REAR = "rear"
    FRONT = "front"
    LATERAL = "lateral"


def corners(x: F64, y: F64, heading: F64, length: F64, width: F64) -> F64:
    """(..., 4, 2) f64 [m], corners of boxes: front left, rear left, rear right, front right. Arguments (...,) f64."""
    cos, sin = np.cos(heading)[..., None], np.sin(heading)[..., None]
    along = np.multiply.outer(length, [0.5, -0.5, -0.5, 0.5])
    across = np.multiply.outer(width, [0.5, 0.5, -0.5, -0.5])
    return np.stack([x[..., None] + cos * along - sin * across, y[..., None] + sin * along + cos * across], axis=-1)


def overlapping(a: F64, b: F64) -> Bool:
    """(...,) bool, whether convex quadrilaterals overlap: separating axes over the edges of both.

    a  (..., 4, 2)  f64 [m]   corners in order; touching counts
    b  (..., 4, 2)  f64 [m]
    """
    apart = np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), dtype=bool)
    for box in (a, b):
        for side in (0, 1):  # opposite edges of a box are parallel
            edge = box[..., side + 1, :] - box[..., side, :]
            normal = np.stack([-edge[..., 1], edge[..., 0]], axis=-1)[..., None, :]
            from_a, from_b = (a * normal).sum(axis=-1), (b * normal).sum(axis=-1)
            apart |= (from_a.max(axis=-1) < from_b.min(axis=-1)) | (from_b.max(axis=-1) < from_a.min(axis=-1))
    return np.asarray(~apart)


def contact_energy(a: Body, b: Body) -> float:
    """Half the norm [m/s] of the difference of the two velocities: nuPlan's energy of a contact of equal masses."""
    return 0.5 * float(
        np.hypot(
            a.speed * np.cos(a.heading) - b.speed * np.cos(b.heading),
            a.speed * np.sin(a.heading) - b.speed * np.sin(b.heading),
        )
    )


def contact_type(ego: Body, other: Body, other_is_agent: bool = True) -> ContactType:
    """How `ego` met `other` at the moment of their first contact."""
    if abs(ego.speed) <= STOPPED:
        return ContactType.STOPPED_EGO
    if not other_is_agent or abs(other.speed) <= STOPPED:
        return ContactType.STOPPED_TRACK
    back = REAR_AXLE_SHARE * ego.length
    dx = other.x - (ego.x - back * np.cos(ego.heading))
    dy = other.y - (ego.y - back * np.sin(ego.heading))
    along, across = (
        dx * np.cos(ego.heading) + dy * np.sin(ego.heading),
        dy * np.cos(ego.heading) - dx * np.sin(ego.heading),
    )
    if abs(np.arctan2(across, along)) > BEHIND:
        return ContactType.REAR
    return ContactType.FRONT if _front_meets(ego, other) else ContactType.LATERAL


def _front_meets(ego: Body, other: Body) -> bool:
    # The front edge as a box without length; the other's box grown by the tolerance of touching.
    half = ego.length / 2
    edge = _box(ego._replace(x=ego.x + half * np.cos(ego.heading), y=ego.y + half * np.sin(ego.heading), length=0.0))
    grown = _box(other._replace(length=other.length + 2 * TOUCH, width=other.width + 2 * TOUCH))
    # An edge has no width, so its own direction as separating axis must be taken from the box it belongs to.
    forward = np.array([np.cos(ego.heading), np.sin(ego.heading)])
    sideways = np.array([-forward[1], forward[0]])
    for axis in (forward, sideways):
        a, b = edge @ axis, grown @ axis
        if a.max() < b.min() or b.max() < a.min():
            return False
    for side in (0, 1):
        axis = grown[side + 1] - grown[side]
        a, b = edge @ axis, grown @ axis
        if a.max() < b.min() or b.max() < a.min():
            return False
    return True


def _box(body: Body) -> F64:
    x, y, heading, length, width = (np.asarray(value, dtype=np.float64) for value in body[:5])
    return corners(x, y, heading, length, width)


def is_at_fault(kind: ContactType, straddling: bool) -> bool:
    """nuPlan's verdict: running into something standing, or with one's front; from the side only while not in lane."""
    return kind in (ContactType.STOPPED_TRACK, ContactType.FRONT) or (kind is ContactType.LATERAL and straddling)


def straddles(body: Body, z: float, lanes: LaneBoxes) -> bool:
    """Whether the corners of a box are not all inside one lane, or lanes that lead into each other."""
    found = lanes.at(_box(body), z)
    everywhere = set().union(*found)
    for first in sorted(everywhere):
        for second in lanes.next_lanes(first):
            for third in lanes.next_lanes(second):
                chain = {first, second, third}
                if all(chain & here for here in found):
                    return False
    return True


class LaneBoxes:
    """The drivable lanes of a map as ribbons, to ask which of them hold a point."""

    def __init__(self, road: RoadMap, level_gate: float) -> None:
        """`level_gate` [m]: lanes further above or below do not hold a point."""
        self._road = road
        self._gate = level_gate
        lanes = np.flatnonzero(road.drivable)
        spans = [road.lane_points(int(lane)) for lane in lanes]
        firsts = [np.arange(span.start, span.stop - 1) for span in spans]
        self._point: NDArray[np.int64] = np.concatenate([np.zeros(0, dtype=np.int64), *firsts])
        self._lane = np.repeat(lanes, [len(first) for first in firsts])
        self._opens = np.concatenate([np.zeros(0, dtype=bool), *(first == first[:1] for first in firsts)])
        xyz = road.xyz.astype(np.float64)
        self._start, self._step = xyz[self._point, :2], xyz[self._point + 1, :2] - xyz[self._point, :2]
        self._z = (xyz[self._point, 2] + xyz[self._point + 1, 2]) / 2
        half = road.width.astype(np.float64) / 2
        self._half, self._half_end = half[self._point], half[self._point + 1]
        self._low = np.minimum(self._start, self._start + self._step)
        self._high = np.maximum(self._start, self._start + self._step)
        self._reach = float(max(self._half.max(initial=0.0), self._half_end.max(initial=0.0)))
        self._squared = np.maximum((self._step**2).sum(axis=1), 1e-12)

    def at(self, points: F64, z: float) -> list[set[int]]:
        """The lanes that hold each of (K, 2) f64 [m] points at height z [m].

        A lane is every point beside a segment within half its width, and at bends the round gap between segments.
        """
        reach = self._reach
        low, high = points.min(axis=0) - reach, points.max(axis=0) + reach
        near = np.flatnonzero(
            ((self._low <= high) & (self._high >= low)).all(axis=1) & (np.abs(self._z - z) <= self._gate)
        )
        step = self._step[near]
        offset = points[:, None] - self._start[near]
        along = (offset * step).sum(axis=2) / self._squared[near]
        # Before its first segment a lane has no round cap: it ends square.
        beside = (along <= 1.0) & ((along >= 0.0) | ~self._opens[near])
        clipped = np.clip(along, 0.0, 1.0)
        gap = offset - clipped[..., None] * step
        half = (1 - clipped) * self._half[near] + clipped * self._half_end[near]
        inside = beside & ((gap**2).sum(axis=2) <= half**2)
        return [set(self._lane[near[row]].tolist()) for row in inside]

    def next_lanes(self, lane: int) -> list[int]:
        """The lane itself and those it leads into."""
        return [lane, *self._road.exits(lane).tolist()]
