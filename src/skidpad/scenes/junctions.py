"""Which lights of a junction may be green together: the conflict graph of their movements and its phases (S104).

A movement is the way through the junction behind a light: the lanes it controls there, or those that its approach lane
leads into, on to the end of the junction. Two lights conflict where a movement of one crosses a movement of the other,
on its level, or enters the same lane; movements from one approach only part. Phases are a greedy colouring of the
lights, those with the most conflicts first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.scene import I32, SIGNAL_LIGHT, RoadMap, Scene

F64 = NDArray[np.float64]

LEVEL_GATE_M = 4.0
_LANES_OF_A_MOVEMENT = 8  # more lanes in a row inside one junction are not a movement but a road


class Phases(NamedTuple):
    """Who is green when.

    group   (S,)  i32  junction of each light, counted from 0 in the order of their first light; -1 = no light
    phase   (S,)  i32  its phase in there, -1 = no light. Phase 0 is the one whose lights control most lanes
    phases  (J,)  i32  phases of each junction, at least 2: where nothing conflicts the last is nobody's, so that every
                       light is red at times
    """

    group: I32
    phase: I32
    phases: I32


class Movement(NamedTuple):
    """One way through a junction: its lanes, what leads into it, and what it leads into."""

    lanes: tuple[int, ...]
    entries: frozenset[int]
    exits: frozenset[int]


def signal_phases(scene: Scene) -> Phases:
    """Phases of all lights of a scene. A light without a junction is a junction of its own."""
    signals = scene.signals
    lights = np.flatnonzero(signals.kind == SIGNAL_LIGHT).tolist()
    members: dict[tuple[str, int], list[int]] = {}
    for light in lights:
        junction = int(signals.junction[light])
        members.setdefault(("junction", junction) if junction >= 0 else ("light", light), []).append(light)
    group = np.full(signals.count, -1, np.int32)
    phase = np.full(signals.count, -1, np.int32)
    phases = np.empty(len(members), np.int32)
    for number, together in enumerate(members.values()):
        colour = _colours(conflicts(scene, together))
        weight = np.bincount(colour, weights=[len(signals.lanes(light)) for light in together])
        rank = np.empty(len(weight), np.int64)
        rank[np.argsort(-weight, kind="stable")] = np.arange(len(weight))
        group[together], phase[together] = number, rank[colour]
        phases[number] = max(len(weight), 2)
    return Phases(group, phase, phases)


def conflicts(scene: Scene, lights: Sequence[int]) -> NDArray[np.bool_]:
    """(n, n) bool: do two lights conflict? Symmetric; a light never conflicts with itself."""
    road = scene.road
    gate = LEVEL_GATE_M if scene.meta.has_z else np.inf
    ways = [movements(road, scene.signals.lanes(light).tolist()) for light in lights]
    found = np.zeros((len(lights), len(lights)), np.bool_)
    for one in range(len(lights)):
        for other in range(one + 1, len(lights)):
            found[one, other] = found[other, one] = any(
                movements_conflict(road, a, b, gate) for a in ways[one] for b in ways[other]
            )
    return found


def movements(road: RoadMap, lanes: Sequence[int]) -> list[Movement]:
    """The movements that begin on, or behind, controlled lanes."""
    ways: list[tuple[int, ...]] = []
    for lane in lanes:
        inside = road.lane_junction[lane] >= 0
        ways += [(lane,)] if inside else [(ahead,) for ahead in road.exits(lane).tolist()]
    found = []
    while ways:
        way = ways.pop()
        last, junction = way[-1], int(road.lane_junction[way[-1]])
        ahead = [lane for lane in road.exits(last).tolist() if junction >= 0 and road.lane_junction[lane] == junction]
        if ahead and len(way) < _LANES_OF_A_MOVEMENT:
            ways += [(*way, lane) for lane in ahead]
        else:
            found.append(Movement(way, frozenset(road.entries(way[0]).tolist()), frozenset(road.exits(last).tolist())))
    return sorted(found)


def movements_conflict(road: RoadMap, one: Movement, other: Movement, gate: float) -> bool:
    """Do two movements cross within `gate` [m] of height, or merge? Not if they only part from one approach."""
    shared = set(one.lanes) & set(other.lanes)
    if one.lanes[0] in shared or other.lanes[0] in shared:
        return one.lanes[0] != other.lanes[0]
    if shared or one.exits & other.exits:
        return True
    if one.entries & other.entries:
        return False
    return any(lanes_cross(road, a, b, gate) for a in one.lanes for b in other.lanes)


def lanes_cross(road: RoadMap, one: int, other: int, gate: float) -> bool:
    """Do the centre lines of two lanes cross at heights within `gate` [m]?"""
    return lane_crossing(road, one, other, gate) is not None


def lane_crossing(road: RoadMap, one: int, other: int, gate: float) -> tuple[float, float] | None:
    """Arcs [m] on two lanes where their centre lines first cross, along `one`, at heights within `gate` [m]."""
    a, b = (road.xyz[road.lane_points(lane)].astype(np.float64) for lane in (one, other))
    p, r = a[:-1, None], np.diff(a, axis=0)[:, None]
    q, s = b[None, :-1], np.diff(b, axis=0)[None]
    turn = r[..., 0] * s[..., 1] - r[..., 1] * s[..., 0]
    gap = q - p
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (gap[..., 0] * s[..., 1] - gap[..., 1] * s[..., 0]) / turn
        u = (gap[..., 0] * r[..., 1] - gap[..., 1] * r[..., 0]) / turn
        level = np.abs((p[..., 2] + t * r[..., 2]) - (q[..., 2] + u * s[..., 2])) <= gate
        found = np.argwhere((t >= 0) & (t <= 1) & (u >= 0) & (u <= 1) & level)
    if not len(found):
        return None
    k, m = found[0]
    arcs = [road.arc[road.lane_points(lane)].astype(np.float64) for lane in (one, other)]
    return tuple(
        float(arc[n] + share * (arc[n + 1] - arc[n]))
        for arc, n, share in ((arcs[0], k, t[k, m]), (arcs[1], m, u[k, m]))
    )  # type: ignore[return-value]


def _colours(conflict: NDArray[np.bool_]) -> NDArray[np.int64]:
    """A colour for each of n lights so that none has that of a light it conflicts with, greedily: most conflicts first,
    ties by number, each the lowest colour that is free."""
    colour = np.full(len(conflict), -1)
    for light in np.argsort(-conflict.sum(axis=1), kind="stable").tolist():
        taken = set(colour[conflict[light]].tolist())
        colour[light] = next(number for number in range(len(conflict)) if number not in taken)
    return colour
