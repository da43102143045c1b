"""Generated roads for tests and teaching: small, complete, the same on every machine (S12).

Each fixture shows one thing: `straight`, `curve`, `crossing` (lights), `roundabout`, `overpass` (two levels),
`merge`, `dead_end`, `stop_yield`, `dense` (5,000 edge segments in a 10 m square). The seed moves the traffic, never
the road, except in `dense`, where it draws the edges.

    scene = synthetic("crossing", seed=3)

Everybody drives on the right; edges have the road on their left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from random import Random

import numpy as np

from skidpad.artifacts.digests import digest_value
from skidpad.errors import UsageError, listed
from skidpad.scenes import polyline
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.polyline import F64
from skidpad.scenes.scene import (
    EDGE_BOUNDARY,
    EDGE_MEDIAN,
    LANE_FREEWAY,
    LANE_STREET,
    LINE_BROKEN_WHITE,
    LINE_DOUBLE_YELLOW,
    SIGNAL_LIGHT,
    SIGNAL_STOP,
    SIGNAL_YIELD,
    STATE_GREEN,
    STATE_RED,
    STATE_YELLOW,
    SUBTYPE_CAR,
    TYPE_VEHICLE,
    Scene,
)

VERSION = "1"
ROWS, DT_US = 91, 100_000
LANE_M = 3.5
LIGHT_PROGRAM = ((10.0, STATE_GREEN), (3.0, STATE_YELLOW), (17.0, STATE_RED))
_BRAKING_M_S2 = 3.0


def synthetic(name: str, seed: int = 0, *, traffic: bool = True) -> Scene:
    """One of FIXTURES. With `traffic` it has a few logged cars over 9 s, the first of them the recording one.

    Raises UsageError for an unknown name.
    """
    if name not in FIXTURES:
        raise UsageError(f"no synthetic scene {name!r}, expected one of {listed(FIXTURES, len(FIXTURES))}.")
    identity = digest_value([name, seed, traffic, VERSION], "synthetic scene")
    builder = SceneBuilder(f"{name}-{seed}", "synthetic", "synthetic", VERSION, identity, DT_US)
    town = Town(builder, Random(seed), traffic)
    FIXTURES[name](town)
    return builder.finish(
        has_z=name == "overpass",
        sdc=0 if traffic else -1,
        tracks_to_predict=range(town.cars),
        licence="Apache-2.0",
        attribution="Skidpad synthetic scene",
    )


class Town:
    """A builder with a memory of its lane centre lines, so that cars can be sent along them."""

    def __init__(self, builder: SceneBuilder, random: Random, traffic: bool) -> None:
        self.builder = builder
        self.random = random
        self.traffic = traffic
        self.centre: dict[Hashable, F64] = {}
        self.cars = 0

    def lane(
        self,
        key: Hashable,
        centre: F64,
        *,
        limit: float = 13.9,
        kind: int = LANE_STREET,
        junction: Hashable | None = None,
        after: Sequence[Hashable] = (),
    ) -> None:
        """A lane of LANE_M width that follows the lanes `after`."""
        self.centre[key] = centre
        number = len(self.centre)
        self.builder.lane(key, centre, width=LANE_M, kind=kind, source_id=number, speed_limit=limit, junction=junction)
        for before in after:
            self.builder.connect(before, key)

    def two_way(self, name: str, spine: F64, *, lanes: int = 2, limit: float = 13.9) -> None:
        """Both directions of a road along a spine: lanes (name, "with" | "against", 0 = innermost), lines, edges."""
        for way, path in (("with", spine), ("against", spine[::-1])):
            for index in range(lanes):
                self.lane((name, way, index), right_of(path, (index + 0.5) * LANE_M), limit=limit)
                if index:
                    self.builder.neighbours((name, way, index - 1), (name, way, index))
                    self.builder.line(right_of(path, index * LANE_M), LINE_BROKEN_WHITE)
            self.builder.edge(right_of(path, lanes * LANE_M), EDGE_BOUNDARY)
        self.builder.line(spine, LINE_DOUBLE_YELLOW)

    def car(self, keys: Sequence[Hashable], start: float, speed: float, *, stop: float | None = None) -> None:
        """A car that drives along lanes from `start` [m] at `speed` [m/s], braking to stand at `stop` [m]."""
        if self.traffic:
            self.drive(np.concatenate([self.centre[key] for key in keys]), *_driven(start, speed, stop))

    def drive(
        self,
        path: F64,
        driven: F64,
        pace: F64,
        *,
        kind: int = TYPE_VEHICLE,
        subtype: int = SUBTYPE_CAR,
        size: tuple[float, float, float] = (4.5, 1.8, 1.5),
    ) -> None:
        """Something that moves along a polyline (n, 3) f64 [m]: how far along (ROWS,) f64 [m] and how fast (ROWS,) f64
        [m/s] at each row; `size` is length, width, height [m]."""
        path, _ = polyline.drop_short_segments(path)
        arc = polyline.arc_lengths(path)
        valid = driven <= arc[-1] - 1.0
        segment = np.clip(np.searchsorted(arc, driven, "right") - 1, 0, len(arc) - 2)
        forward = polyline.directions(path)[segment]
        x, y, z = (np.interp(driven, arc, path[:, axis]) for axis in range(3))
        self.builder.track(
            self.cars + 1,
            kind,
            subtype,
            x=x,
            y=y,
            z=z,
            heading=np.arctan2(forward[:, 1], forward[:, 0]),
            vx=pace * forward[:, 0],
            vy=pace * forward[:, 1],
            length=size[0],
            width=size[1],
            height=size[2],
            valid=valid,
        )
        self.cars += 1

    def pace(self, low: float, high: float) -> float:
        """A drawn number, the same for a seed whatever the Python."""
        return low + (high - low) * self.random.random()


def _driven(start: float, speed: float, stop: float | None) -> tuple[F64, F64]:
    """Distance along the path (ROWS,) f64 [m] and speed (ROWS,) f64 [m/s] of each row."""
    time: F64 = np.arange(ROWS, dtype=np.float64) * (DT_US * 1e-6)
    if stop is None:
        return start + speed * time, np.full(ROWS, speed)
    braking = max(_BRAKING_M_S2, speed * speed / (2.0 * max(stop - start, 0.1)))
    begin = (stop - start - speed * speed / (2.0 * braking)) / speed
    into = np.clip(time - begin, 0.0, speed / braking)
    driven: F64 = start + speed * np.minimum(time, begin) + speed * into - 0.5 * braking * into**2
    pace: F64 = speed - braking * into
    return driven, pace


def right_of(path: F64, distance: float) -> F64:
    return polyline.shifted(path, np.full(len(path), -distance))


def line(*points: tuple[float, ...], step: float = 10.0) -> F64:
    """A polyline through points, with a vertex at least every `step` metres: (n, 3) f64."""
    corners = np.array([(*point, 0.0)[:3] for point in points])
    parts = [corners[:1]]
    for one, other in pairwise(corners):
        pieces = max(1, int(np.ceil(np.hypot(*(other - one)[:2]) / step)))
        parts.append(one + (other - one) * (np.arange(1, pieces + 1) / pieces)[:, None])
    return np.concatenate(parts)


def arc(centre: tuple[float, float], radius: float, first: float, last: float, pieces: int = 12) -> F64:
    """A circular arc between two angles [rad]: (pieces + 1, 3) f64."""
    angle = np.linspace(first, last, pieces + 1)
    flat = np.stack([centre[0] + radius * np.cos(angle), centre[1] + radius * np.sin(angle)], axis=1)
    return np.column_stack([flat, np.zeros(len(flat))])


def _turn(one: F64, other: F64, pieces: int = 12) -> F64:
    """A smooth way from the end of one polyline to the start of another: a cubic curve, (pieces + 1, 3) f64."""
    start, end = one[-1], other[0]
    # 0.39 of the chord makes the curve of a right angle a near perfect quarter circle.
    reach = 0.39 * float(np.hypot(*(end - start)[:2]))
    leave, arrive = polyline.directions(one)[-1], polyline.directions(other)[0]
    handles = [start, start + reach * np.append(leave, 0.0), end - reach * np.append(arrive, 0.0), end]
    t = np.linspace(0.0, 1.0, pieces + 1)[:, None]
    weights = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]
    curve: F64 = np.sum([weight * handle for weight, handle in zip(weights, handles, strict=True)], axis=0)
    return curve


def _arms(town: Town, inner: float, outer: float) -> None:
    """Four arms of one lane per direction: lanes ("in", k) and ("out", k), arm k lying at k quarter turns."""
    for arm in range(4):
        away = np.array([(1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0)][arm])
        spine = line(tuple(away * inner), tuple(away * outer))
        town.lane(("out", arm), right_of(spine, LANE_M / 2))
        town.lane(("in", arm), right_of(spine[::-1], LANE_M / 2))
        town.builder.line(spine, LINE_DOUBLE_YELLOW)


def four_ways(town: Town) -> None:
    """Arms, all twelve movements of a crossing as lanes ("turn", from, to), and its four kerbs."""
    _arms(town, 14.0, 90.0)
    for arm in range(4):
        for turn in (1, 2, 3):
            target = (arm + turn) % 4
            way = _turn(town.centre["in", arm], town.centre["out", target])
            town.lane(("turn", arm, target), way, limit=8.3, junction="crossing", after=[("in", arm)])
            town.builder.connect(("turn", arm, target), ("out", target))
        right = (arm + 1) % 4
        keys = [("in", arm), ("turn", arm, right), ("out", right)]
        kerb, _ = polyline.drop_short_segments(np.concatenate([town.centre[key] for key in keys]))
        town.builder.edge(right_of(kerb, LANE_M / 2), EDGE_BOUNDARY)


def _straight(town: Town) -> None:
    town.two_way("road", line((-150.0, 0.0), (150.0, 0.0)))
    for index, (way, lane) in enumerate([("with", 0), ("with", 1), ("against", 0), ("against", 1)]):
        town.car([("road", way, lane)], 20.0 + 15.0 * index, town.pace(9.0, 14.0))
        town.car([("road", way, lane)], 60.0 + 15.0 * index, town.pace(9.0, 14.0))


def _curve(town: Town) -> None:
    bend = arc((0.0, 60.0), 60.0, -np.pi / 2, 0.0, 32)
    spine = np.concatenate([line((-80.0, 0.0), (0.0, 0.0))[:-1], bend, line((60.0, 60.0), (60.0, 140.0))[1:]])
    town.two_way("road", spine, lanes=1)
    for index, way in enumerate(("with", "against")):
        town.car([("road", way, 0)], 15.0, town.pace(7.0, 10.0))
        town.car([("road", way, 0)], 50.0 + 5.0 * index, town.pace(10.0, 12.0))


def lit_crossing(town: Town) -> None:
    """The crossing with its lights: arms 1 and 3 are green first."""
    four_ways(town)
    time = np.arange(ROWS if town.traffic else 1) * DT_US * 1e-6
    ends = np.cumsum([duration for duration, _ in LIGHT_PROGRAM])
    codes = np.array([state for _, state in LIGHT_PROGRAM], np.uint8)
    for arm in range(4):
        # 15 s after arms 1 and 3, half a cycle, the other two.
        phase = 1 - arm % 2
        offset = 15.0 * phase
        states = codes[np.searchsorted(ends, np.mod(time - offset, ends[-1]), "right")]
        town.builder.signal(
            SIGNAL_LIGHT,
            [("in", arm)],
            junction="crossing",
            phase=phase,
            states=states,
            cycle_offset=offset,
            program=LIGHT_PROGRAM,
        )


def _crossing(town: Town) -> None:
    lit_crossing(town)
    for arm in (1, 3):
        ahead = [("in", arm), ("turn", arm, (arm + 2) % 4), ("out", (arm + 2) % 4)]
        town.car(ahead, 35.0, town.pace(8.0, 11.0))
        right = [("in", arm), ("turn", arm, (arm + 1) % 4), ("out", (arm + 1) % 4)]
        town.car(right, 15.0, town.pace(5.0, 7.0))
    for arm in (0, 2):
        # The front of the first car stands 2 m before the line, the second 2.5 m behind it.
        ahead = [("in", arm), ("turn", arm, (arm + 2) % 4), ("out", (arm + 2) % 4)]
        town.car(ahead, 40.0, town.pace(7.0, 9.0), stop=71.7)
        town.car(ahead, 12.0, town.pace(7.0, 9.0), stop=64.7)


def roundabout_road(town: Town) -> None:
    """A ring of 16 m that four arms enter and leave, each yielding to it."""
    _arms(town, 30.0, 100.0)
    radius = 16.0
    inlet, outlet = np.radians(25.0), np.radians(-25.0)  # where arms meet the ring, from the arm's own angle
    for arm in range(4):
        angle = arm * np.pi / 2
        town.lane(
            ("ring", arm, "at"), arc((0, 0), radius, angle + outlet, angle + inlet, 8), limit=8.3, junction="ring"
        )
        town.lane(
            ("ring", arm, "after"),
            arc((0, 0), radius, angle + inlet, angle + np.pi / 2 + outlet, 8),
            limit=8.3,
            junction="ring",
            after=[("ring", arm, "at")],
        )
    for arm in range(4):
        following = (arm + 1) % 4
        town.builder.connect(("ring", arm, "after"), ("ring", following, "at"))
        way_in = _turn(town.centre["in", arm], town.centre["ring", arm, "after"])
        town.lane(("enter", arm), way_in, limit=8.3, after=[("in", arm)])
        town.builder.connect(("enter", arm), ("ring", arm, "after"))
        way_out = _turn(town.centre["ring", arm, "after"], town.centre["out", following])
        town.lane(("leave", following), way_out, limit=8.3, after=[("ring", arm, "after")])
        town.builder.connect(("leave", following), ("out", following))
        town.builder.signal(SIGNAL_YIELD, [("in", arm)], junction="ring")
        keys = [("in", arm), ("enter", arm), ("ring", arm, "after"), ("leave", following), ("out", following)]
        kerb, _ = polyline.drop_short_segments(np.concatenate([town.centre[key] for key in keys]))
        town.builder.edge(right_of(kerb, LANE_M / 2), EDGE_BOUNDARY)
        # Between the ways in and out of one arm, up to where traffic goes round.
        splitter = right_of(town.centre["enter", arm], -LANE_M / 2)
        outside = np.hypot(splitter[:, 0], splitter[:, 1]) > radius + LANE_M / 2 + 0.5
        town.builder.edge(splitter[outside][::-1], EDGE_MEDIAN)
    town.builder.edge(arc((0, 0), radius - LANE_M / 2, 2 * np.pi, 0.0, 48), EDGE_BOUNDARY)


def _roundabout(town: Town) -> None:
    roundabout_road(town)
    for arm in (0, 2):
        keys = [("in", arm), ("enter", arm), ("ring", arm, "after")]
        around = (arm + 1) % 4
        keys += [("ring", around, "at"), ("ring", around, "after"), ("leave", (arm + 2) % 4), ("out", (arm + 2) % 4)]
        town.car(keys, 25.0, town.pace(6.0, 8.0))


def _overpass(town: Town) -> None:
    town.two_way("below", line((-120.0, 0.0, 0.0), (120.0, 0.0, 0.0)), lanes=1)
    town.two_way("above", line((0.0, -120.0, 6.0), (0.0, 120.0, 6.0)), lanes=1)
    for name in ("below", "above"):
        # Both pass the crossing point at the same time, one over the other.
        speed = town.pace(10.0, 13.0)
        town.car([(name, "with", 0)], 120.0 - 4.5 * speed, speed)
        town.car([(name, "against", 0)], 20.0, town.pace(9.0, 12.0))


def merging_road(town: Town) -> None:
    """A freeway of two lanes that a ramp joins."""
    sections = [line((-200.0, 0.0), (0.0, 0.0)), line((0.0, 0.0), (120.0, 0.0)), line((120.0, 0.0), (320.0, 0.0))]
    for index, section in enumerate(sections):
        for lane in range(2):
            key = ("main", index, lane)
            before: list[Hashable] = [("main", index - 1, lane)] if index else []
            town.lane(key, right_of(section, (lane + 0.5) * LANE_M), limit=27.8, kind=LANE_FREEWAY, after=before)
        town.builder.neighbours(("main", index, 0), ("main", index, 1))
        town.builder.line(right_of(section, LANE_M), LINE_BROKEN_WHITE)
    # The ramp comes in beside the right lane, runs along it, and narrows into it over the last 40 m.
    along = line((0.0, -2.5 * LANE_M), (80.0, -2.5 * LANE_M))
    last = town.centre["main", 2, 1]
    slope = line((-200.0, -34.0), (-60.0, -14.0))
    town.lane("ramp", np.concatenate([slope, _turn(slope, along)[1:]]), limit=16.7, kind=LANE_FREEWAY)
    town.lane("acceleration", along, limit=27.8, kind=LANE_FREEWAY, after=["ramp"])
    town.lane("taper", _turn(along, last), limit=27.8, kind=LANE_FREEWAY, after=["acceleration"])
    town.builder.connect("taper", ("main", 2, 1))
    town.builder.neighbours(("main", 1, 1), "acceleration")
    right_side = [town.centre[key] for key in ("ramp", "acceleration", "taper")] + [last]
    kerb, _ = polyline.drop_short_segments(np.concatenate(right_side))
    town.builder.edge(right_of(kerb, LANE_M / 2), EDGE_BOUNDARY)
    town.builder.edge(line((320.0, 0.0), (-200.0, 0.0)), EDGE_BOUNDARY)
    # Between main road and ramp up to the nose, where the two borders meet.
    nose, _ = polyline.drop_short_segments(right_of(town.centre["ramp"], -LANE_M / 2))
    nose = nose[nose[:, 1] < -2.0 * LANE_M - 0.1]
    tip = np.array([[nose[-1, 0] + 0.5, -2.0 * LANE_M, 0.0]])
    town.builder.edge(np.concatenate([nose, tip])[::-1], EDGE_BOUNDARY)
    town.builder.edge(line((-200.0, -2 * LANE_M), (float(tip[0, 0]), -2 * LANE_M)), EDGE_BOUNDARY)


def _merge(town: Town) -> None:
    merging_road(town)
    ramp = ["ramp", "acceleration", "taper", ("main", 2, 1)]
    main = [[("main", index, lane) for index in range(3)] for lane in range(2)]
    town.car(ramp, 120.0, town.pace(18.0, 20.0))
    town.car(main[1], 60.0, town.pace(20.0, 21.0))
    town.car(main[1], 200.0, town.pace(22.0, 23.0))
    town.car(main[0], 100.0, town.pace(22.0, 25.0))


def _dead_end(town: Town) -> None:
    spine = line((-100.0, 0.0), (0.0, 0.0))
    town.two_way("road", spine, lanes=1, limit=8.3)
    town.builder.edge(line((0.0, -LANE_M), (0.0, LANE_M)), EDGE_BOUNDARY)
    town.car([("road", "with", 0)], 10.0, town.pace(6.0, 8.0), stop=92.0)
    town.car([("road", "against", 0)], 5.0, town.pace(5.0, 7.0))


def _stop_yield(town: Town) -> None:
    """Arms 0 and 2 have the right of way, arm 1 stops, arm 3 yields."""
    four_ways(town)
    town.builder.signal(SIGNAL_STOP, [("in", 1)], junction="crossing")
    town.builder.signal(SIGNAL_YIELD, [("in", 3)], junction="crossing")
    for arm in (0, 2):
        town.car([("in", arm), ("turn", arm, (arm + 2) % 4), ("out", (arm + 2) % 4)], 20.0, town.pace(9.0, 12.0))
    town.car([("in", 1), ("turn", 1, 3), ("out", 3)], 30.0, town.pace(7.0, 9.0), stop=72.0)
    town.car([("in", 3), ("turn", 3, 1), ("out", 1)], 5.0, town.pace(5.0, 6.0), stop=71.0)


def _dense(town: Town) -> None:
    town.lane("road", line((-60.0, 0.0), (60.0, 0.0)))
    for index in range(50):
        xy = [(town.pace(-5.0, 5.0), town.pace(-5.0, 5.0)) for _ in range(101)]
        town.builder.edge(np.array(xy), EDGE_BOUNDARY, source_id=index)
    town.car(["road"], 2.0, town.pace(9.0, 11.0))


FIXTURES: dict[str, Callable[[Town], None]] = {
    "straight": _straight,
    "curve": _curve,
    "crossing": _crossing,
    "roundabout": _roundabout,
    "overpass": _overpass,
    "merge": _merge,
    "dead_end": _dead_end,
    "stop_yield": _stop_yield,
    "dense": _dense,
}
