"""A straight road along x with cars put on it by hand, and worlds over it."""

from __future__ import annotations

import numpy as np

from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.case import Case
from skidpad.scenes.scene import EDGE_BOUNDARY, LANE_STREET, SUBTYPE_CAR, TYPE_VEHICLE
from skidpad.settings.schema import EnvSettings
from skidpad.simulation.simulator import Simulator

ROWS, DT_US = 91, 100_000


def car(
    x,
    y=0.0,
    speed=0.0,
    heading=0.0,
    *,
    valid=True,
    length=4.5,
    width=1.8,
    type=TYPE_VEHICLE,
    subtype=SUBTYPE_CAR,
    **more,
):
    """Arguments of `SceneBuilder.track` for a car that starts at (x, y) and holds its speed."""
    t = np.arange(ROWS) * DT_US * 1e-6
    track = {
        "x": x + speed * t * np.cos(heading),
        "y": y + speed * t * np.sin(heading),
        "heading": np.full(ROWS, heading),
        "vx": np.full(ROWS, speed * np.cos(heading)),
        "vy": np.full(ROWS, speed * np.sin(heading)),
        "length": length,
        "width": width,
        "height": 1.5,
        "valid": np.broadcast_to(valid, ROWS).copy(),
        "type": type,
        "subtype": subtype,
    }
    return track | more


def straight_road(
    tracks=(), *, length=400.0, lanes=1, limit=13.9, signals=(), sdc=-1, predict=(), name="road", has_z=False, rise=0.0
):
    """Lanes of 3.5 m along x, the first centred on y = 0, others to its right, `rise` metres up per metre; edges 1 m
    beyond."""
    builder = SceneBuilder(name, "test", "test", "1", "0" * 64, DT_US)
    x = np.linspace(0.0, length, int(length / 10) + 1)
    for lane in range(lanes):
        centre = np.stack([x, np.full_like(x, -3.5 * lane), rise * x], axis=1)
        builder.lane(lane, centre, width=np.full(len(x), 3.5), kind=LANE_STREET, speed_limit=limit)
        if lane:
            builder.neighbours(lane - 1, lane)
    for y in (2.75, -3.5 * (lanes - 1) - 2.75):
        builder.edge(np.stack([x, np.full_like(x, y), np.zeros_like(x)], axis=1), EDGE_BOUNDARY)
    for signal in signals:
        builder.signal(**({"lanes": [0]} | signal))
    for number, track in enumerate(tracks):
        track = dict(track)
        builder.track(track.pop("source_id", 100 + number), track.pop("type"), track.pop("subtype"), **track)
    return builder.finish(has_z=has_z, sdc=sdc, tracks_to_predict=predict)


def case_of(scene, **identity):
    """The case of a scene with benchmark seed 0, unless told."""
    return Case(scene.digest, scene.meta.scene_id, **({"benchmark_seed": 0} | identity))


def simulator(scenes, settings=None, *, cases=None, **options):
    """Worlds over one scene or several."""
    scenes = list(scenes) if isinstance(scenes, list | tuple) else [scenes]
    cases = [case_of(scene) for scene in scenes] if cases is None else cases
    return Simulator(cases, settings or EnvSettings(), scenes={scene.digest: scene for scene in scenes}, **options)


def coast(sim):
    """Actions that ask for nothing."""
    rows = len(sim.row_world)
    return np.full(rows, 31, np.int32) if sim.settings.action_type == "discrete" else np.zeros((rows, 2), np.float32)


def history(sim, actions=None, names=("x", "y", "heading", "speed", "events", "status", "goal_index")):
    """Reset, run to the end, and return each named array as (states, agents). `actions(sim, result)` decides."""
    result = sim.reset()
    found = {name: [sim.agent[name].copy()] for name in names}
    while not sim.done.all():
        result = sim.step(coast(sim) if actions is None else actions(sim, result))
        for name in names:
            found[name].append(sim.agent[name].copy())
    return {name: np.array(values) for name, values in found.items()}
