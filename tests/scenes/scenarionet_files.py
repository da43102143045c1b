"""A writer of ScenarioNet scenarios for the tests: of both generations of NumPy, with arrays or with lists."""

from __future__ import annotations

import pickle
from collections import defaultdict
from typing import Any

import numpy as np
from small_world import world_points

from skidpad.scenes.scene import SIGNAL_LIGHT, Scene

TYPES = {0: "OTHER", 1: "VEHICLE", 2: "PEDESTRIAN", 3: "CYCLIST"}
LANES = ("LANE_UNKNOWN", "LANE_FREEWAY", "LANE_SURFACE_STREET", "LANE_BIKE_LANE")
OTHERS = {11: "ROAD_LINE_BROKEN_SINGLE_WHITE", 21: "ROAD_EDGE_BOUNDARY", 31: "CROSSWALK"}
STATES = {0: None, 1: "LANE_STATE_STOP", 2: "TRAFFIC_LIGHT_YELLOW", 3: "LANE_STATE_ARROW_GO"}


def document(scene: Scene, *, lists: bool = False) -> dict[str, Any]:
    """The scenario of a scene as the converters make it; with `lists` no arrays, columns (T, 1), ids as texts."""
    road, tracks, signals, meta = scene.road, scene.tracks, scene.signals, scene.meta

    def made(values: Any, dtype: str = "f8") -> Any:
        return np.asarray(values, dtype).tolist() if lists else np.asarray(values, dtype)

    features: dict[str, Any] = {}
    ids = road.source_id[road.lane_element]
    for element in range(road.element_count):
        kind, points = int(road.element_type[element]), world_points(scene, element)
        name = str(road.source_id[element])
        if kind >= 10:
            member = "polygon" if kind >= 30 else "polyline"
            features[name] = {"type": OTHERS[kind], member: made(points)}
            continue
        half = road.width[road.points(element)][:, None] * (0.5, 0.5)
        limit = float(np.nan_to_num(road.speed_limit[element]))
        features[name] = {
            "type": LANES[kind],
            "polyline": made(points),
            "width": made(half, "f4"),
            "speed_limit_kmh": limit * 3.6,
            "speed_limit_mph": limit / 0.44704,
            "entry_lanes": ids[road.entries(element)].tolist(),
            "exit_lanes": ids[road.exits(element)].tolist(),
            "left_neighbor": [],
            "right_neighbor": [],
            "left_boundaries": [],
            "right_boundaries": [],
            "interpolating": False,
        }
    lights: dict[str, Any] = {}
    for n in range(signals.count):
        middle = made(signals.line[n].mean(axis=0).astype(float) + meta.origin)
        lanes = ids[signals.lanes(n)].tolist()
        if signals.kind[n] != SIGNAL_LIGHT:
            features[str(900 + n)] = {"type": "STOP_SIGN", "lane": lanes, "position": middle}
            continue
        lights[str(lanes[0])] = {
            "type": "TRAFFIC_LIGHT",
            "state": {"object_state": [STATES[state] for state in signals.state[n].tolist()]},
            "lane": str(lanes[0]) if lists else lanes[0],
            "stop_point": middle,
            "metadata": {"type": "TRAFFIC_LIGHT"},
        }
    people: dict[str, Any] = {}
    for n in range(tracks.count):
        valid = tracks.valid[n]
        place = np.stack([getattr(tracks, axis)[n] for axis in "xyz"], axis=1).astype(float) + meta.origin
        state = {name: made(getattr(tracks, name)[n]) for name in ("heading", "length", "width", "height")}
        if lists:
            state = {name: [[value] for value in column] for name, column in state.items()}
        state["position"] = made(np.where(valid[:, None], place, 0.0))
        state["velocity"] = made(np.stack([tracks.vx[n], tracks.vy[n]], axis=1))
        state["valid"] = made(valid, "f4" if lists else "?")
        name = str(tracks.source_id[n])
        people[name] = {"type": TYPES[int(tracks.type[n])], "state": state, "metadata": {"object_id": name}}
    names = list(people)
    summary: Any = defaultdict(int)
    summary["VEHICLE"] = 2
    return {
        "id": meta.scene_id,
        "version": "MetaDrive v0.4",
        "length": meta.steps,
        "metadata": {
            "ts": made(np.arange(meta.steps) * meta.dt, "f4"),
            "coordinate": "waymo",
            "dataset": "test",
            "sdc_id": names[meta.sdc],
            "current_time_index": str(meta.current_step) if lists else meta.current_step,
            "objects_of_interest": [names[n] for n in meta.objects_of_interest],
            "tracks_to_predict": {names[n]: {"track_index": n, "track_id": names[n]} for n in meta.tracks_to_predict},
            "number_summary": {"num_objects_each_type": summary, "moving": {"VEHICLE"} if not lists else []},
        },
        "tracks": people,
        "dynamic_map_states": lights,
        "map_features": features,
    }


def scenarionet_pickle(scene: Scene, *, generation: int = 2, lists: bool = False) -> bytes:
    """The file of a scene; generation 1 is that of before NumPy 2."""
    value = document(scene, lists=lists)
    if generation == 2:
        return pickle.dumps(value, protocol=4)
    value["metadata"]["number_summary"]["moving"] = ["VEHICLE"]
    return pickle.dumps(value, protocol=3).replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
