"""Generated scenes of each behaviour class: small pieces of traffic in which the first car does what the class names.

They stand in for recordings where none are at hand: for tests, and for the suite that ships. 9 s of log at 10 Hz, one
second of it history, so that they can be continued like a benchmark's.

    scene = behaviour_scene("yielding", seed=1)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from random import Random

import numpy as np

from skidpad.artifacts.digests import digest_value
from skidpad.errors import UsageError, listed
from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.polyline import F64
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    EDGE_BOUNDARY,
    LANE_FREEWAY,
    LINE_BROKEN_WHITE,
    SIGNAL_STOP,
    SIGNAL_YIELD,
    SUBTYPE_NONE,
    TYPE_PEDESTRIAN,
    Scene,
)
from skidpad.scenes.synthetic import (
    DT_US,
    LANE_M,
    ROWS,
    Town,
    arc,
    four_ways,
    line,
    lit_crossing,
    merging_road,
    right_of,
    roundabout_road,
)

VERSION = "1"
HISTORY_ROWS = 10
FINE_S = 0.01


def behaviour_scene(name: str, seed: int = 0) -> Scene:
    """A scene of a class of `behaviours.BEHAVIOURS`; the seed moves speeds and gaps, never the road.

    Raises UsageError for an unknown name.
    """
    if name not in BEHAVIOUR_SCENES:
        known = listed(BEHAVIOUR_SCENES, len(BEHAVIOUR_SCENES))
        raise UsageError(f"no behaviour scene {name!r}, expected one of {known}.")
    identity = digest_value([name, seed, VERSION], "behaviour scene")
    builder = SceneBuilder(f"{name}-{seed}", "synthetic", "synthetic", VERSION, identity, DT_US)
    town = Town(builder, Random(seed), True)
    BEHAVIOUR_SCENES[name](town)
    return builder.finish(
        has_z=False,
        current_step=HISTORY_ROWS,
        sdc=0,
        tracks_to_predict=range(town.cars),
        labels={"behaviour": name},
        licence="Apache-2.0",
        attribution="Skidpad synthetic scene",
    )


def motion(start: float, speed: float, *changes: tuple[float, float]) -> tuple[F64, F64]:
    """Distance (ROWS,) f64 [m] and speed (ROWS,) f64 [m/s] of one who accelerates by so much [m/s^2] from each of these
    seconds on; nobody drives backwards.

    changes  (second, acceleration), in order
    """
    fine = round(DT_US * 1e-6 / FINE_S)
    time = np.arange((ROWS - 1) * fine) * FINE_S
    pace = [speed]
    for now in time:
        acceleration = next((value for second, value in reversed(changes) if now >= second - 1e-9), 0.0)
        pace.append(max(0.0, pace[-1] + acceleration * FINE_S))
    fast = np.array(pace)
    driven = start + np.concatenate([[0.0], np.cumsum((fast[1:] + fast[:-1]) * FINE_S / 2.0)])
    return driven[::fine], fast[::fine]


def _along(town: Town, *keys: Hashable) -> F64:
    return np.concatenate([town.centre[key] for key in keys])


def _through(town: Town, arm: int, to: int) -> F64:
    """From one arm of the crossing to another."""
    return _along(town, ("in", arm), ("turn", arm, to), ("out", to))


def _road(town: Town) -> None:
    town.two_way("road", line((-150.0, 0.0), (150.0, 0.0)))


def _oncoming(town: Town) -> None:
    town.drive(_along(town, ("road", "against", 0)), *motion(40.0, town.pace(9.0, 12.0)))


def _hard_stop(town: Town) -> None:
    _road(town)
    lane = _along(town, ("road", "with", 0))
    speed = town.pace(12.0, 14.0)
    braked = 20.0 + 3.0 * speed + speed**2 / 13.0
    town.drive(lane, *motion(20.0, speed, (3.0, -6.5)))
    town.drive(lane, *motion(braked + town.pace(7.0, 10.0), 0.0))
    _oncoming(town)


def _lane_change(town: Town) -> None:
    _road(town)
    right, left = _along(town, ("road", "with", 1)), _along(town, ("road", "with", 0))
    speed = town.pace(11.0, 13.0)
    town.drive(_shifted(right, left, 60.0, 45.0), *motion(15.0, speed))
    town.drive(right, *motion(65.0, town.pace(5.0, 6.0)))
    _oncoming(town)


def _shifted(one: F64, other: F64, begin: float, metres: float) -> F64:
    """Along `one`, over to `other` between `begin` and `begin + metres` [m]; both straight and of one length."""
    along = np.linspace(0.0, 1.0, 301)
    points = [
        np.stack([np.interp(along, np.linspace(0, 1, len(p)), p[:, k]) for k in range(3)], 1) for p in (one, other)
    ]
    length = float(np.hypot(*(one[-1] - one[0])[:2]))
    share = np.clip((along * length - begin) / metres, 0.0, 1.0)[:, None]
    share = share * share * (3.0 - 2.0 * share)
    shifted: F64 = points[0] + share * (points[1] - points[0])
    return shifted


def _merge(town: Town) -> None:
    merging_road(town)
    ramp = _along(town, "ramp", "acceleration", "taper", ("main", 2, 1))
    main = [_along(town, *[("main", index, lane) for index in range(3)]) for lane in range(2)]
    town.drive(ramp, *motion(190.0, town.pace(17.0, 19.0), (2.0, 0.6), (6.0, 0.0)))
    town.drive(main[1], *motion(60.0, town.pace(20.0, 21.0)))
    town.drive(main[1], *motion(205.0, town.pace(22.0, 23.0)))
    town.drive(main[0], *motion(100.0, town.pace(22.0, 25.0)))


def _roundabout(town: Town) -> None:
    roundabout_road(town)
    way: Sequence[Hashable] = [
        ("in", 0), ("enter", 0), ("ring", 0, "after"), ("ring", 1, "at"), ("ring", 1, "after"), ("leave", 2),
        ("out", 2),
    ]  # fmt: skip
    town.drive(_along(town, *way), *motion(52.0, town.pace(6.5, 8.0)))
    back: Sequence[Hashable] = [("in", 2), ("enter", 2), ("ring", 2, "after"), ("leave", 3), ("out", 3)]
    town.drive(_along(town, *back), *motion(10.0, town.pace(5.0, 6.0)))


def _stop_sign(town: Town) -> None:
    four_ways(town)
    town.builder.signal(SIGNAL_STOP, [("in", 1)], junction="crossing")
    # The line is 76 m along; the front stands 1.5 m before it, a second later it goes on.
    town.drive(_through(town, 1, 3), *motion(72.2 - 4.0 * 4.0 - 16.0, 8.0, (2.0, -2.0), (7.0, 2.0)))
    town.drive(_through(town, 0, 2), *motion(5.0, town.pace(10.0, 12.0)))


def _traffic_light(town: Town) -> None:
    lit_crossing(town)
    # Red for 15 s on this arm: it stands 2 m before the line.
    speed = town.pace(7.0, 9.0)
    braking = 2.0
    town.drive(_through(town, 0, 2), *motion(71.7 - speed**2 / (2 * braking) - 2.0 * speed, speed, (2.0, -braking)))
    for arm in (1, 3):
        town.drive(_through(town, arm, (arm + 2) % 4), *motion(40.0, town.pace(8.0, 11.0)))


def _unprotected_left(town: Town) -> None:
    four_ways(town)
    town.drive(_through(town, 0, 3), *motion(45.0, 9.0, (2.0, -1.5), (4.5, 0.0), (6.0, 1.0)))
    town.drive(_through(town, 2, 0), *motion(62.0, town.pace(10.0, 12.0)))


def _unprotected_right(town: Town) -> None:
    four_ways(town)
    town.drive(_through(town, 0, 1), *motion(45.0, 9.0, (2.0, -1.5), (4.5, 0.0), (6.0, 1.0)))
    town.drive(_through(town, 2, 0), *motion(20.0, town.pace(8.0, 10.0)))


def _highway_straight(town: Town) -> None:
    spine = line((0.0, 0.0), (500.0, 0.0), step=20.0)
    for lane in range(3):
        town.lane(("main", lane), right_of(spine, (lane + 0.5) * LANE_M), limit=33.3, kind=LANE_FREEWAY)
        if lane:
            town.builder.neighbours(("main", lane - 1), ("main", lane))
            town.builder.line(right_of(spine, lane * LANE_M), LINE_BROKEN_WHITE)
    town.builder.edge(right_of(spine, 3 * LANE_M), EDGE_BOUNDARY)
    town.builder.edge(spine[::-1], EDGE_BOUNDARY)
    town.drive(_along(town, ("main", 1)), *motion(60.0, town.pace(25.0, 29.0)))
    town.drive(_along(town, ("main", 1)), *motion(120.0, town.pace(28.0, 30.0)))
    town.drive(_along(town, ("main", 0)), *motion(40.0, town.pace(29.0, 32.0)))
    town.drive(_along(town, ("main", 2)), *motion(90.0, town.pace(22.0, 25.0)))


def _yielding(town: Town) -> None:
    four_ways(town)
    town.builder.signal(SIGNAL_YIELD, [("in", 3)], junction="crossing")
    town.drive(_through(town, 3, 1), *motion(71.0 - 16.0 - 8.0, 8.0, (1.0, -2.0), (6.0, 2.5)))
    town.drive(_through(town, 0, 2), *motion(35.0, town.pace(9.5, 11.0)))


def _pedestrian_crossing(town: Town) -> None:
    _road(town)
    side = 2 * LANE_M
    town.builder.area(np.array([(18.0, -side), (22.0, -side), (22.0, side), (18.0, side)]), AREA_CROSSWALK)
    # 170 m along the lane; it stands 5 m before the zebra crossing and goes on when the way is clear.
    town.drive(_along(town, ("road", "with", 0)), *motion(161.0 - 20.0 - 16.0, 8.0, (2.0, -2.0), (6.5, 2.5)))
    across, walked = line((20.0, -side - 1.0), (20.0, side + 1.0), step=1.0), motion(0.0, town.pace(1.6, 1.9))
    town.drive(across, *walked, kind=TYPE_PEDESTRIAN, subtype=SUBTYPE_NONE, size=(0.5, 0.6, 1.75))
    _oncoming(town)


def _u_turn(town: Town) -> None:
    _road(town)
    radius = 1.5 * LANE_M
    there, back = _along(town, ("road", "with", 1)), _along(town, ("road", "against", 1))
    path = np.concatenate(
        [there[there[:, 0] < -1.0], arc((0.0, 0.0), radius, -np.pi / 2, np.pi / 2, 24), back[back[:, 0] < -1.0]]
    )
    town.drive(path, *motion(130.0, town.pace(6.0, 7.0), (1.0, -1.5), (2.5, 0.0), (7.0, 1.0)))
    town.drive(_along(town, ("road", "with", 0)), *motion(180.0, town.pace(9.0, 11.0)))


BEHAVIOUR_SCENES: dict[str, Callable[[Town], None]] = {
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
