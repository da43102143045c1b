"""What a recorded vehicle does, measured: the behaviour classes of `behavior_class` (E67).

A class is a rule over the log of one vehicle, its lanes and whoever crosses its way, with its thresholds in this file
and in `docs/evaluation.md`. A scene may show several behaviours, or none. Nothing is learnt and nothing is labelled
by hand, so that a folder is sorted alike everywhere, and a wrong class can be argued with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skidpad.scenes.junctions import conflicts
from skidpad.scenes.lanes import lane_lengths, neighbours, shortest_path
from skidpad.scenes.routes import lanes_of_rows
from skidpad.scenes.scene import (
    LANE_FREEWAY,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    STATE_GREEN,
    STATE_RED,
    STATE_YELLOW,
    SUBTYPE_STATIC,
    TYPE_CYCLIST,
    TYPE_PEDESTRIAN,
    TYPE_VEHICLE,
    RoadMap,
    Scene,
)

F64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

SHORTEST_S = 2.0  # a vehicle recorded for less shows nothing
STANDING_M_S = 0.5
# Hard stop: at least so much braking on average over a second, and standing soon after.
HARD_BRAKING_M_S2, HARD_STOP_S = 4.0, 4.0
# Lane change: both lanes are held for so long.
LANE_HELD_S = 1.0
# Merge: the joining lane turns by so much more than the one it joins, over the last metres before they meet.
MERGE_TURN_RAD, MERGE_BEFORE_M = float(np.radians(3.0)), 80.0
# Roundabout: a closed ring of lanes, round to within a share of its radius, driven on for so long.
RING_MOST_M, RING_UNEVEN, RING_S = 250.0, 0.08, 2.0
# Signals: so near before the line [m]; behind others at a red light, so far. Rolling over a stop line is not stopping.
SIGNAL_NEAR_M, QUEUE_M, ROLLING_M_S = 10.0, 40.0, 3.0
# Turns at junctions, by the change of heading from before to behind it.
TURN_RAD = (float(np.radians(45.0)), float(np.radians(135.0)))
U_TURN_RAD, U_TURN_S, U_TURN_M = float(np.radians(150.0)), 15.0, 40.0
# Highway: freeway lanes, or a limit or mean speed as there; nearly no turn, over so many metres.
HIGHWAY_LIMIT_M_S, HIGHWAY_SPEED_M_S, HIGHWAY_TURN_RAD, HIGHWAY_M = 22.0, 20.0, float(np.radians(10.0)), 50.0
# Yielding and pedestrians: paths that meet this closely, whoever was first by at most so long; slowing to half.
MEET_M, MEET_TURN_RAD, GAP_S, PEDESTRIAN_GAP_S, SLOWED, YIELD_WITHIN_M = (
    2.0,
    float(np.radians(30.0)),
    5.0,
    6.0,
    0.5,
    25.0,
)
SLOWED_FROM_M_S, AHEAD_M, LEVEL_M = 3.0, 15.0, 4.0


class Shown(NamedTuple):
    """A behaviour and when it was shown: seconds from the first row of the scene, and the measurement in words."""

    behaviour: str
    second: float
    why: str


def behaviours(scene: Scene) -> list[Shown]:
    """Every class that the scene's recorded vehicle shows, in the order of BEHAVIOURS; empty where there is none.

    The vehicle is the recording one, else the one that is there longest.
    """
    ego = recorded_vehicle(scene)
    if ego < 0:
        return []
    drive = Drive(scene, ego)
    if len(drive.rows) < 2 or drive.time[-1] - drive.time[0] < SHORTEST_S:
        return []
    found = []
    for name, rule in BEHAVIOURS.items():
        shown = next(rule(drive), None)
        if shown is not None:
            found.append(Shown(name, round(float(drive.time[shown[0]]), 3), shown[1]))
    return found


def recorded_vehicle(scene: Scene) -> int:
    """The track that a scene is about: its recording vehicle, else the vehicle with most rows, ties by source id; -1
    where there is no vehicle that moves by itself."""
    tracks = scene.tracks
    if scene.meta.sdc >= 0:
        return scene.meta.sdc
    vehicles = np.flatnonzero((tracks.type == TYPE_VEHICLE) & (tracks.subtype != SUBTYPE_STATIC))
    if not len(vehicles):
        return -1
    rows = tracks.valid[vehicles].sum(axis=1)
    return int(vehicles[np.lexsort((tracks.source_id[vehicles], -rows))[0]])


class Run(NamedTuple):
    """Rows first to last, inclusive, on one lane (-1 = none)."""

    lane: int
    first: int
    last: int


class Meeting(NamedTuple):
    """Where another's path comes to the vehicle's own: row of the vehicle (beyond its last one where it never got
    there), row of the scene of the other, and the distance between the paths [m]."""

    mine: int
    theirs: int
    metres: float


@dataclass(frozen=True)
class Drive:
    """The log of one vehicle, over the rows in which it is there; K of them."""

    scene: Scene
    ego: int
    rows: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", np.flatnonzero(self.scene.tracks.valid[self.ego]))

    def _column(self, name: str) -> F64:
        return np.asarray(getattr(self.scene.tracks, name)[self.ego, self.rows], np.float64)

    @cached_property
    def time(self) -> F64:
        """(K,) f64 [s]."""
        return np.asarray(self.rows * (self.scene.meta.dt_us * 1e-6), np.float64)

    @cached_property
    def xy(self) -> F64:
        """(K, 2) f64 [m]."""
        return np.stack([self._column("x"), self._column("y")], axis=1)

    @cached_property
    def speed(self) -> F64:
        """(K,) f64 [m/s]."""
        return np.hypot(self._column("vx"), self._column("vy"))

    @cached_property
    def heading(self) -> F64:
        """(K,) f64 [rad], continuous."""
        return np.unwrap(self._column("heading"))

    @cached_property
    def lane(self) -> NDArray[np.int32]:
        """(K,) i32 lane of each row, -1 = none."""
        return lanes_of_rows(self.scene.road, self.scene.tracks, self.ego)[self.rows]

    @cached_property
    def runs(self) -> list[Run]:
        """Stretches on one lane, in order, those on none left out."""
        starts = np.flatnonzero(np.diff(self.lane, prepend=np.int32(-2)))
        ends = [*(starts[1:] - 1), len(self.lane) - 1]
        runs = [Run(int(self.lane[one]), int(one), int(end)) for one, end in zip(starts, ends, strict=True)]
        return [run for run in runs if run.lane >= 0]

    def seconds(self, run: Run) -> float:
        return float(self.time[run.last] - self.time[run.first])

    @cached_property
    def rings(self) -> set[int]:
        """The lanes driven on that are part of a roundabout."""
        return {run.lane for run in self.runs if is_ring(self.scene.road, run.lane)}

    @cached_property
    def gap_to_lines(self) -> F64:
        """(K, S) f64 [m] from the vehicle's front along its heading to each stop line, negative behind it."""
        middle = self.scene.signals.line.mean(axis=1)[:, :2].astype(np.float64)
        forward = np.stack([np.cos(self.heading), np.sin(self.heading)], axis=1)
        away = np.einsum("ksd,kd->ks", middle[None] - self.xy[:, None], forward)
        return np.asarray(away - self._column("length")[:, None] / 2.0)

    def approached(self, kind: int) -> Iterator[tuple[int, Bool]]:
        """Each signal of a kind that controls a lane driven on, with the rows on such a lane (K,)."""
        signals = self.scene.signals
        for signal in np.flatnonzero(signals.kind == kind).tolist():
            on_lane = np.isin(self.lane, signals.lanes(signal))
            if on_lane.any():
                yield signal, on_lane

    @cached_property
    def lit(self) -> Bool:
        """(K,) bool, rows on a lane that a traffic light controls."""
        found = np.zeros(len(self.rows), np.bool_)
        for _, on_lane in self.approached(SIGNAL_LIGHT):
            found |= on_lane
        return found

    def meetings(self, kinds: tuple[int, ...], turned: float) -> Iterator[Meeting]:
        """Where paths of others of some types come within MEET_M of this one's, extended by AHEAD_M along its last
        heading, turned against it by at least `turned` [rad]."""
        tracks, last = self.scene.tracks, self.heading[-1]
        more = np.arange(1.0, AHEAD_M + 1.0)[:, None] * np.array([np.cos(last), np.sin(last)])
        path = np.concatenate([self.xy, self.xy[-1] + more])
        heading = np.concatenate([self.heading, np.full(len(more), last)])
        height = np.concatenate([self._column("z"), np.full(len(more), self._column("z")[-1])])
        for other in np.flatnonzero(np.isin(tracks.type, kinds)).tolist():
            rows = np.flatnonzero(tracks.valid[other])
            if other == self.ego or len(rows) < 2:
                continue
            x, y = (getattr(tracks, axis)[other, rows].astype(np.float64) for axis in "xy")
            if np.hypot(x[-1] - x[0], y[-1] - y[0]) < MEET_M:
                continue  # It stands: nobody crosses there.
            gap = np.hypot(path[:, :1] - x, path[:, 1:] - y)
            apart = heading[:, None] - tracks.heading[other, rows]
            across = np.abs(np.remainder(apart + np.pi, 2.0 * np.pi) - np.pi)
            out = (across < turned) | (np.abs(height[:, None] - tracks.z[other, rows]) > LEVEL_M)
            gap = np.where(out, np.inf, gap)
            mine, theirs = divmod(int(gap.argmin()), len(rows))
            if gap[mine, theirs] < MEET_M:
                yield Meeting(mine, int(rows[theirs]), float(gap[mine, theirs]))


Rule = Callable[[Drive], Iterator[tuple[int, str]]]


def is_ring(road: RoadMap, lane: int) -> bool:
    """Is the lane part of a small closed ring of lanes?"""
    lengths = lane_lengths(road)
    ways = [
        way for ahead in road.exits(lane).tolist() if (way := shortest_path(road, ahead, lane, RING_MOST_M)) is not None
    ]
    for way in ways:
        if sum(float(lengths[one]) for one in way) > RING_MOST_M:
            continue
        points = np.concatenate([road.xyz[road.lane_points(one), :2] for one in way]).astype(np.float64)
        low, high = points.min(axis=0), points.max(axis=0)
        radius = np.hypot(*(points - (low + high) / 2.0).T)
        if radius.std() < RING_UNEVEN * radius.mean():
            return True
    return False


def turning_before(road: RoadMap, lane: int) -> float:
    """How much a lane turns [rad] in all over its last MERGE_BEFORE_M, and those of the lanes that lead into it."""
    total, left, seen = 0.0, MERGE_BEFORE_M, set[int]()
    while left > 0.0 and lane not in seen:
        seen.add(lane)
        where = road.lane_points(lane)
        arc = road.arc[where].astype(np.float64)
        direction = road.direction[where].astype(np.float64)
        kept = arc >= arc[-1] - left
        angle = np.unwrap(np.arctan2(direction[kept, 1], direction[kept, 0]))
        total += float(np.abs(np.diff(angle)).sum())
        left -= float(arc[-1])
        before = road.entries(lane)
        if not len(before):
            break
        lane = int(before[0])
    return total


def _hard_stop(drive: Drive) -> Iterator[tuple[int, str]]:
    window = max(1, round(1.0 / drive.scene.meta.dt))
    within = round(HARD_STOP_S / drive.scene.meta.dt)
    braking = (drive.speed[:-window] - drive.speed[window:]) / (drive.time[window:] - drive.time[:-window])
    for k in np.flatnonzero(braking >= HARD_BRAKING_M_S2).tolist():
        if (drive.speed[k : k + within] < STANDING_M_S).any():
            yield k, f"brakes by {braking[k]:.1f} m/s^2 over a second and stands"


def _changes(drive: Drive) -> Iterator[tuple[Run, Run]]:
    """Lane changes: from one lane to its neighbour, both held, neither in a junction."""
    road = drive.scene.road
    for one, other in zip(drive.runs, drive.runs[1:], strict=False):
        held = min(drive.seconds(one), drive.seconds(other)) >= LANE_HELD_S
        inside = road.lane_junction[one.lane] >= 0 or road.lane_junction[other.lane] >= 0
        if held and not inside and other.lane in neighbours(road, one.lane):
            yield one, other


def _lane_change(drive: Drive) -> Iterator[tuple[int, str]]:
    for one, other in _changes(drive):
        yield other.first, f"from lane {one.lane} to its neighbour {other.lane}"


def _merge(drive: Drive) -> Iterator[tuple[int, str]]:
    road = drive.scene.road
    for one, other in zip(drive.runs, drive.runs[1:], strict=False):
        if other.lane not in road.exits(one.lane) or road.lane_junction[[one.lane, other.lane]].max() >= 0:
            continue
        others = [lane for lane in road.entries(other.lane).tolist() if lane != one.lane]
        mine = turning_before(road, one.lane)
        if others and mine > min(turning_before(road, lane) for lane in others) + MERGE_TURN_RAD:
            yield other.first, f"lane {one.lane} joins lane {other.lane}"
    for one, other in _changes(drive):
        if not len(road.exits(one.lane)) and len(road.exits(other.lane)):
            yield other.first, f"leaves lane {one.lane}, which ends"


def _roundabout(drive: Drive) -> Iterator[tuple[int, str]]:
    inside = [run for run in drive.runs if run.lane in drive.rings]
    seconds = sum(drive.seconds(run) for run in inside)
    if seconds >= RING_S:
        yield inside[0].first, f"{seconds:.1f} s on a ring of lanes"


def _stop_sign(drive: Drive) -> Iterator[tuple[int, str]]:
    for signal, on_lane in drive.approached(SIGNAL_STOP):
        gap = drive.gap_to_lines[:, signal]
        near = on_lane & (gap > -SIGNAL_NEAR_M) & (gap <= SIGNAL_NEAR_M)
        if near.any() and drive.speed[near].min() < ROLLING_M_S:
            slowest = int(np.flatnonzero(near)[drive.speed[near].argmin()])
            yield slowest, f"down to {drive.speed[slowest]:.1f} m/s at a stop line"


def _traffic_light(drive: Drive) -> Iterator[tuple[int, str]]:
    states = drive.scene.signals.state
    for signal, on_lane in drive.approached(SIGNAL_LIGHT):
        state, gap = states[signal, drive.rows], drive.gap_to_lines[:, signal]
        shown = on_lane & np.isin(state, (STATE_RED, STATE_YELLOW, STATE_GREEN))
        near = shown & (np.abs(gap) <= SIGNAL_NEAR_M)
        queue = shown & (state == STATE_RED) & (gap >= 0.0) & (gap <= QUEUE_M) & (drive.speed < STANDING_M_S)
        for k in np.flatnonzero(near | queue).tolist()[:1]:
            yield (
                k,
                "comes to a light that is " + {STATE_RED: "red", STATE_YELLOW: "yellow"}.get(int(state[k]), "green"),
            )


class Turn(NamedTuple):
    """A way through a junction: its rows, and the change of heading [rad], positive to the left."""

    first: int
    last: int
    angle: float


def _turns(drive: Drive) -> Iterator[Turn]:
    """Ways through junctions that the log holds from before to behind."""
    road = drive.scene.road
    inside = (drive.lane >= 0) & (road.lane_junction[np.maximum(drive.lane, 0)] >= 0) if road.lane_count else None
    if inside is None or not inside.any():
        return
    starts = np.flatnonzero(np.diff(inside.astype(np.int8), prepend=0) == 1)
    ends = np.flatnonzero(np.diff(inside.astype(np.int8), append=0) == -1)
    for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
        if first and last + 1 < len(inside) and not drive.rings & set(drive.lane[first : last + 1].tolist()):
            yield Turn(first, last, float(drive.heading[last + 1] - drive.heading[first - 1]))


def _lights_over(drive: Drive, turn: Turn) -> list[int]:
    """Lights that control the approach or the way itself."""
    lanes = drive.lane[max(0, turn.first - 1) : turn.last + 1]
    signals = drive.scene.signals
    lights = np.flatnonzero(signals.kind == SIGNAL_LIGHT).tolist()
    return [light for light in lights if np.isin(signals.lanes(light), lanes).any()]


def _unprotected_left(drive: Drive) -> Iterator[tuple[int, str]]:
    signals = drive.scene.signals
    for turn in _turns(drive):
        if not TURN_RAD[0] <= turn.angle <= TURN_RAD[1]:
            continue
        lights, row = _lights_over(drive, turn), int(drive.rows[turn.first])
        if not lights:
            yield turn.first, "turns left where no light controls the way"
            continue
        everything = np.flatnonzero(signals.kind == SIGNAL_LIGHT).tolist()
        against = conflicts(drive.scene, everything)[[everything.index(light) for light in lights]].any(axis=0)
        green = signals.state[everything, row] == STATE_GREEN
        if (signals.state[lights, row] == STATE_GREEN).any() and (against & green).any():
            yield turn.first, "turns left on a green that crossing traffic has too"


def _unprotected_right(drive: Drive) -> Iterator[tuple[int, str]]:
    for turn in _turns(drive):
        if not TURN_RAD[0] <= -turn.angle <= TURN_RAD[1]:
            continue
        lights = _lights_over(drive, turn)
        if not lights:
            yield turn.first, "turns right where no light controls the way"
        elif (drive.scene.signals.state[lights, int(drive.rows[turn.first])] == STATE_RED).all():
            yield turn.first, "turns right on red"


def _highway_straight(drive: Drive) -> Iterator[tuple[int, str]]:
    road, lanes = drive.scene.road, drive.lane[drive.lane >= 0]
    if not len(lanes) or next(_merge(drive), None) or next(_changes(drive), None):
        return
    metres = float(np.hypot(*np.diff(drive.xy, axis=0).T).sum())
    freeway = bool((road.element_type[road.lane_element[lanes]] == LANE_FREEWAY).all())
    fast = bool((road.speed_limit[lanes] >= HIGHWAY_LIMIT_M_S).all()) or drive.speed.mean() >= HIGHWAY_SPEED_M_S
    if (freeway or fast) and metres >= HIGHWAY_M and np.ptp(drive.heading) <= HIGHWAY_TURN_RAD:
        yield 0, f"{metres:.0f} m straight on, at {drive.speed.mean():.1f} m/s on average"


def _yielding(drive: Drive) -> Iterator[tuple[int, str]]:
    dt = drive.scene.meta.dt
    for meeting in drive.meetings((TYPE_VEHICLE, TYPE_CYCLIST), MEET_TURN_RAD):
        arrives = min(meeting.mine, len(drive.rows) - 1)
        passed = meeting.theirs * dt
        if not 0.0 < drive.time[arrives] - passed <= GAP_S:
            continue
        before = (drive.time >= passed - GAP_S) & (np.arange(len(drive.rows)) <= arrives)
        slowest = int(np.flatnonzero(before)[drive.speed[before].argmin()])
        faster = drive.speed[max(0, slowest - round(GAP_S / dt)) : slowest + 1].max()
        near = np.hypot(*(drive.xy[slowest] - drive.xy[arrives])) <= YIELD_WITHIN_M
        if faster >= SLOWED_FROM_M_S and drive.speed[slowest] <= SLOWED * faster and near and not drive.lit[slowest]:
            yield slowest, f"slows from {faster:.1f} to {drive.speed[slowest]:.1f} m/s for one who crosses first"


def _pedestrian_crossing(drive: Drive) -> Iterator[tuple[int, str]]:
    for meeting in drive.meetings((TYPE_PEDESTRIAN,), 0.0):
        arrives = min(meeting.mine, len(drive.rows) - 1)
        gap = drive.time[arrives] - meeting.theirs * drive.scene.meta.dt
        if 0.0 <= gap <= PEDESTRIAN_GAP_S:
            yield arrives, f"a pedestrian crosses {gap:.1f} s ahead of it"


def _u_turn(drive: Drive) -> Iterator[tuple[int, str]]:
    if drive.rings:
        return
    for k in range(len(drive.rows)):
        rows = np.flatnonzero((drive.time > drive.time[k]) & (drive.time <= drive.time[k] + U_TURN_S))
        turned = np.abs(drive.heading[rows] - drive.heading[k])
        near = np.hypot(*(drive.xy[rows] - drive.xy[k]).T) <= U_TURN_M
        if (near & (turned >= U_TURN_RAD)).any():
            yield k, f"turns by {np.degrees(turned.max()):.0f} degrees"
            return


BEHAVIOURS: dict[str, Rule] = {
    "hard_stop": _hard_stop,
    "lane_change": _lane_change,
    "merge": _merge,
    "roundabout": _roundabout,
    "stop_sign": _stop_sign,
    "traffic_light": _traffic_light,
    "unprotected_left": _unprotected_left,
    "unprotected_right": _unprotected_right,
    "highway_straight": _highway_straight,
    "yielding": _yielding,
    "pedestrian_crossing": _pedestrian_crossing,
    "u_turn": _u_turn,
}
"""Rule of each class: rows at which it is shown, with the measurement in words."""
