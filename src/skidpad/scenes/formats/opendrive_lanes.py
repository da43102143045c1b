"""From strips to the lanes of a scene: direction, speed limit, neighbours; folded borders are straightened."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.build import LossReport, SceneBuilder
from skidpad.scenes.formats.opendrive_geometry import F64
from skidpad.scenes.formats.opendrive_marks import add_lines
from skidpad.scenes.formats.opendrive_records import Lane, Network, Road, Section
from skidpad.scenes.formats.opendrive_strips import NOT_LANES, LaneKey, Strip, StripKey, Strips
from skidpad.scenes.scene import (
    LANE_BUILT_BY_READER,
    LANE_WALKWAY,
)


def add_lanes(network: Network, strips: Strips, builder: SceneBuilder, loss: LossReport) -> None:
    """Hand every strip to the builder, in its direction or in both, with its limit, neighbours and painted lines."""
    for key, strip in strips.lanes.items():
        road = network.roads[key[0]]
        section = road.sections[key[1]]
        limit = _speed_limit(road, section, strip.lane, loss)
        for along in strip.along:
            order = slice(None) if along else slice(None, None, -1)
            heading = strip.heading if along else strip.heading[::-1] + math.pi
            left, right = strip.borders(along)
            kept = unfolded(strip.centre[order], heading)
            folded = not kept.all()
            left, right = (side[unfolded(side, heading)] for side in (left, right))
            if folded or len(left) < len(strip.s) or len(right) < len(strip.s):
                loss.count("repaired_folded_lane", f"road {key[0]}, section {key[1]}, lane {key[2]}")
            first = along == strip.along[0]
            builder.lane(
                (*key, along),
                strip.centre[order][kept],
                width=strip.width[order][kept],
                kind=strip.kind,
                source_id=_source_id(key) if first else -1,
                speed_limit=limit,
                junction=road.junction,
                left=left,
                right=right,
                flags=0 if first else LANE_BUILT_BY_READER,
            )
    for road in network.roads.values():
        for index, section in enumerate(road.sections):
            for left_key, right_key in _neighbours(road.id, index, section, strips.lanes):
                builder.neighbours(left_key, right_key)
            add_lines(road.id, index, section, strips, builder, loss)


def unfolded(points: F64, heading: F64) -> NDArray[np.bool_]:
    """Which points (n,) bool of a border or centre line go on in the direction of the road.

    points   (n, 3)  f64 [m]
    heading  (n,)    f64 [rad]  of travel along the reference line

    Inside of a curve that is tighter than the lane is far out, a border runs backwards for a while. The first and the
    last point always stay.
    """
    step = np.diff(points[:, :2], axis=0)
    middle = 0.5 * (heading[1:] + heading[:-1])
    if not np.any(step[:, 0] * np.cos(middle) + step[:, 1] * np.sin(middle) < 0.0):
        return np.ones(len(points), dtype=np.bool_)

    def goes_on(start: int, end: int) -> bool:
        ahead = points[end, :2] - points[start, :2]
        return bool(ahead[0] * math.cos(heading[end]) + ahead[1] * math.sin(heading[end]) > 0.0)

    last = len(points) - 1
    kept = [0]
    for i in range(1, last):
        if goes_on(kept[-1], i):
            kept.append(i)
    while len(kept) > 1 and not goes_on(kept[-1], last):
        kept.pop()
    kept.append(last)
    mask = np.zeros(len(points), dtype=np.bool_)
    mask[kept] = True
    return mask


def _source_id(key: StripKey) -> int:
    """Road 467, section 2, lane -1 is 467_002_499; -1 where the road's id is no number that leaves room."""
    road, section, lane = key
    plain = road.isascii() and road.isdigit() and len(road) <= 12 and str(int(road)) == road  # "07" is not 7
    if not (plain and section < 1000 and abs(lane) < 500):
        return -1
    return (int(road) * 1000 + section) * 1000 + lane + 500


def _speed_limit(road: Road, section: Section, lane: Lane, loss: LossReport) -> float | None:
    """The limit that holds on the longest part of a lane; the lane's own records win over the road's."""
    records: Sequence[tuple[float, float | None]] = lane.limits or [(s, limit) for s, _, limit in road.types]
    share: dict[float | None, float] = {}
    ends = [*(start for start, _ in records[1:]), math.inf]
    for (start, limit), end in zip(records, ends[: len(records)], strict=True):
        length = min(end, section.end) - max(start, section.start)
        if length > 0.0:
            share[limit] = share.get(limit, 0.0) + length
    if not share:
        return None
    if len(share) > 1:
        loss.count("assumed_speed_limit", f"road {road.id}, lane {lane.id}: several limits, the longest counts")
    return max(share, key=lambda limit: share[limit])


def _neighbours(
    road: str, index: int, section: Section, strips: Mapping[StripKey, Strip]
) -> Iterator[tuple[LaneKey, LaneKey]]:
    """Pairs (left, right) of lanes that touch and are driven the same way; what separates them is a lane too."""
    present = [id for id, lane in section.lanes.items() if (road, index, id) in strips or lane.type in NOT_LANES]
    for low, high in pairwise(present):  # ids grow to the left
        right, left = strips.get((road, index, low)), strips.get((road, index, high))
        if right is None or left is None or LANE_WALKWAY in (right.kind, left.kind):
            continue
        for along in right.along:
            if along in left.along:
                pair = (*left.key, along), (*right.key, along)
                yield pair if along else (pair[1], pair[0])
