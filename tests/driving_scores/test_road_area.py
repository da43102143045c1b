"""Which lanes hold a point: the blocks of `road_area` against one point and one segment at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from driving import car, lane, scene_of, trace_of

from skidpad.evaluation.metrics.road_area import FAR_M, MAP_END_M, box_places, in_junction, road_area, straddling
from skidpad.evaluation.metrics.view import CaseView
from skidpad.scenes.scene import Scene


def naive_outside(point, lines) -> list[float]:
    """Metres outside each lane: lines are (vertices, width); square ends MAP_END_M beyond, round bends."""
    found = []
    for vertices, width in lines:
        v = np.array(vertices, dtype=float)
        first, last = v[1] - v[0], v[-1] - v[-2]
        v[0] -= first / np.hypot(*first) * MAP_END_M
        v[-1] += last / np.hypot(*last) * MAP_END_M
        best = math.inf
        for i in range(len(v) - 1):
            step = v[i + 1] - v[i]
            length = np.hypot(*step)
            along = (point - v[i]) @ step / length
            across = abs((point - v[i])[1] * step[0] - (point - v[i])[0] * step[1]) / length
            end = (along < 0 and i == 0) or (along > length and i == len(v) - 2)
            past = max(-along, along - length, 0.0)
            if end:
                best = min(best, math.hypot(max(across - width / 2, 0.0), past))
            else:
                best = min(best, math.hypot(across, past) - width / 2)
        found.append(best)
    return found


@pytest.mark.parametrize("seed", range(4))
def test_blocks_agree_with_one_point_at_a_time(seed: int) -> None:
    """Style 9.2: pruning by block, reducing by lane and round bends, on random crooked lanes; a lane that is pruned
    though it holds a point, or counted to its neighbour, shows here."""
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(5):
        turn = np.cumsum(rng.normal(0, 0.4, 6)) + rng.uniform(-3, 3)
        steps = rng.uniform(2, 9, (6, 1)) * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        start = np.concatenate([np.zeros((1, 2)), np.cumsum(steps, axis=0)]) + rng.uniform(-20, 20, 2)
        lines.append((start.astype(np.float32).astype(float), float(np.float32(rng.uniform(2, 5)))))
    scene = scene_of([], [lane(points.tolist(), width=width) for points, width in lines])
    points = np.cumsum(rng.normal(0, 1.0, (60, 3, 2)), axis=0) + rng.uniform(-10, 10, 2)
    # Half of them around the ends of lanes, which a walk rarely finds.
    for k in range(0, 60, 2):
        line = lines[k % 5][0] if k % 4 else lines[k % 5][0][::-1]
        forward = line[0] - line[1]
        end = line[0] + forward / np.hypot(*forward) * MAP_END_M
        points[k] = end + rng.normal(0, 1.5, (3, 2))
    (found,) = road_area(scene.road).places([(points, np.zeros(60))])
    for k in range(60):
        for c in range(3):
            outside = naive_outside(points[k, c], lines)
            inside = {int(found.lanes[j]) for j in np.flatnonzero(found.inside[k, c])}
            assert inside == {number for number, metres in enumerate(outside) if metres <= 0}
            assert found.outside_m[k, c] == pytest.approx(min(max(min(outside), 0.0), FAR_M), abs=1e-9)


def test_map_without_lanes_holds_nothing() -> None:
    """No lanes, no steps: empty arrays, no error."""
    scene = scene_of([car()])
    (found,) = road_area(scene.road).places([(np.zeros((3, 5, 2)), np.zeros(3))])
    assert found.inside.shape == (3, 5, 0)
    assert np.all(found.outside_m == FAR_M)
    lanes = scene_of([car()], [lane([(0, 0), (9, 0)])])
    nothing, something = road_area(lanes.road).places([(np.zeros((k, 5, 2)), np.zeros(k)) for k in (0, 14)])
    assert nothing.inside.shape == (0, 5, 0)
    assert something.inside.shape == (14, 5, 1)


def test_levels_and_undrivable_lanes_are_no_road() -> None:
    """A bridge above, or a walkway beside, must not hold a car on the road."""
    scene = scene_of([car()], [lane([(0, 0, 6.0), (9, 0, 6.0)]), lane([(0, 0), (9, 0)], drivable=False)])
    (found,) = road_area(scene.road).places([(np.array([[[4.0, 0.0]], [[4.0, 0.0]]]), np.array([0.0, 6.0]))])
    assert found.outside_m[:, 0].tolist() == [FAR_M, 0.0]


def box_at(x, y, heading, lanes, *, junction=None):
    scene = scene_of([car()], lanes, rows=2)
    if junction is not None:
        # Entered from lane 0, lane 1 begins where its line does.
        named = {"lane_junction": junction, "entry_offset": [0, 0, 1], "entry_lane": [0]}
        arrays = dict(scene.arrays()) | {f"road.{name}": np.array(v, dtype=np.int32) for name, v in named.items()}
        scene = Scene.from_arrays(arrays, scene.meta)
    view = CaseView(trace_of(scene, {"x": x, "y": y, "heading": heading}, steps=1), scene)
    return box_places(view, 0), scene.road


TWO = [lane([(-50, 0), (50, 0)], width=3.0), lane([(-50, 3), (50, 3)], width=3.0)]


@pytest.mark.parametrize(
    ("y", "lanes", "expected"),
    [
        (0.0, TWO, False),
        (0.6, TWO, True),  # left corners at 1.6 are in the other lane
        (5.0, TWO, True),  # right corners at 4.0 inside, left ones on no lane
        (0.0, [lane([(-50, 0), (1, 0)], exits=[1]), lane([(1, 0), (50, 0)])], False),  # one leads into the other
        (0.0, [lane([(-50, 0), (1, 0)]), lane([(1, 20), (50, 20)])], False),  # the map ends 1 m ahead
    ],
)
def test_straddling(y: float, lanes: list, expected: bool) -> None:
    """Q12: the corners of a 4 x 2 m box at the origin, in one lane, between two, off the road, across a joint."""
    places, road = box_at(0.0, y, 0.0, lanes)
    assert straddling(places, road).tolist() == [expected, expected]


def test_junction_holds_the_centre() -> None:
    """A corner in a junction is not in it yet; the centre is."""
    lanes = [lane([(-50, 0), (0, 0)], exits=[1]), lane([(0, 0), (50, 0)])]
    for x, expected in ((-1.0, False), (1.0, True)):
        places, road = box_at(x, 0.0, 0.0, lanes, junction=[-1, 0])
        assert in_junction(places, road).tolist() == [expected, expected]
