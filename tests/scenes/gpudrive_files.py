"""A writer of GPUDrive and Nocturne JSON for the tests: any scene in the two forms and both units of heading."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from small_world import world_points

from skidpad.scenes.scene import SIGNAL_LIGHT, SIGNAL_STOP, Scene

_TYPES = {0: "other", 1: "vehicle", 2: "pedestrian", 3: "cyclist"}
_STATES = {0: "unknown", 1: "stop", 2: "arrow_caution", 3: "go"}


def _code(kind: int) -> tuple[str, int]:
    if kind < 10:
        return "lane", kind
    if kind < 20:
        return "road_line", kind - 5
    if kind < 30:
        return "road_edge", kind - 6
    return {31: ("crosswalk", 18), 32: ("speed_bump", 19), 33: ("driveway", 20)}[kind]


def _places(points: np.ndarray, columns: bool, has_z: bool) -> Any:
    axes = "xyz" if has_z else "xy"
    table = {axis: np.asarray(points)[:, index].round(6).tolist() for index, axis in enumerate(axes)}
    return table if columns else [dict(zip(axes, row, strict=True)) for row in zip(*table.values(), strict=True)]


def document(scene: Scene, *, degrees: bool = False, columns: bool = False, ids: bool = True) -> dict[str, Any]:
    """The file of a scene as plain values. Without `ids` it has no ids, heights or map codes."""
    meta, tracks, signals = scene.meta, scene.tracks, scene.signals
    objects = []
    for index in range(tracks.count):
        valid = tracks.valid[index]
        place = np.stack([getattr(tracks, axis)[index] for axis in "xyz"], axis=1).astype(float) + meta.origin
        speed = np.stack([tracks.vx[index], tracks.vy[index]], axis=1).astype(float)
        heading = tracks.heading[index].astype(float) * (180.0 / np.pi if degrees else 1.0)
        place[~valid], speed[~valid], heading[~valid] = -10000.0, -10000.0, -10000.0
        one: dict[str, Any] = {
            "type": _TYPES[int(tracks.type[index])],
            "position": _places(place, columns, ids),
            "velocity": _places(speed, columns, False),
            "heading": heading.round(7).tolist(),
            "valid": valid.tolist(),
            "width": round(float(tracks.width[index].max()), 6),
            "length": round(float(tracks.length[index].max()), 6),
            "goalPosition": _places((tracks.goal[index] + meta.origin)[None], False, ids)[0],
            "mark_as_expert": bool(tracks.expert[index]),
        }
        if ids:
            one |= {"id": int(tracks.source_id[index]), "height": round(float(tracks.height[index].max()), 6)}
        objects.append(one)
    roads = []
    for element in range(scene.road.element_count):
        word, code = _code(int(scene.road.element_type[element]))
        road: dict[str, Any] = {"type": word, "geometry": _places(world_points(scene, element), False, ids)}
        if ids:
            road |= {"id": int(scene.road.source_id[element]), "map_element_id": code}
        roads.append(road)
    lights = {}
    for signal in range(signals.count):
        middle = signals.line[signal].mean(axis=0).astype(float) + meta.origin
        if signals.kind[signal] == SIGNAL_STOP:
            sign: dict[str, Any] = {"type": "stop_sign", "geometry": _places(middle[None], False, ids)}
            roads.append(sign | ({"id": 900 + signal, "map_element_id": 17} if ids else {}))
        elif signals.kind[signal] == SIGNAL_LIGHT:
            lane = int(signals.lane[signals.lane_offset[signal]])
            series = signals.state[signal].tolist()
            lights[str(scene.road.source_id[scene.road.lane_element[lane]])] = {
                "state": [_STATES[state] for state in series],
                **{axis: [round(float(middle[at]), 6)] * len(series) for at, axis in enumerate("xyz")},
                "time_index": list(range(len(series))),
                "lane_id": [int(scene.road.source_id[scene.road.lane_element[lane]])] * len(series),
            }
    metadata = {
        "sdc_track_index": meta.sdc,
        "tracks_to_predict": [{"track_index": track, "difficulty": 0} for track in meta.tracks_to_predict],
        "objects_of_interest": [int(tracks.source_id[track]) if ids else track for track in meta.objects_of_interest],
    }
    return {
        "name": f"{meta.scene_id}.json",
        "scenario_id": meta.scene_id,
        "objects": objects,
        "roads": roads,
        "tl_states": lights,
        "metadata": metadata,
    }


def gpudrive_json(scene: Scene, **form: bool) -> bytes:
    """The file of a scene."""
    return json.dumps(document(scene, **form), separators=(",", ":")).encode()
