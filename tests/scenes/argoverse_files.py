"""Argoverse 2 scenarios for the tests: the columns of a Parquet file, and the JSON of a map."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from small_world import world_points

from skidpad.scenes.scene import Scene

_WORDS = {1: "vehicle", 2: "pedestrian", 3: "cyclist"}


def columns(scene: Scene, *, shuffle: bool = False) -> dict[str, np.ndarray]:
    """The columns of the scenario: the recording vehicle is AV, tracks to predict are focal, then scored."""
    rows: list[dict[str, Any]] = []
    meta, tracks = scene.meta, scene.tracks
    for n in range(tracks.count):
        chosen = n in meta.tracks_to_predict
        for row in np.flatnonzero(tracks.valid[n]).tolist():
            rows.append(
                {
                    "observed": row < 2,
                    "track_id": "AV" if n == meta.sdc else str(int(tracks.source_id[n])),
                    "object_type": _WORDS[int(tracks.type[n])],
                    "object_category": 3 if chosen and n == meta.tracks_to_predict[0] else 2 if chosen else 1,
                    "timestep": row,
                    "position_x": float(tracks.x[n, row]) + meta.origin[0],
                    "position_y": float(tracks.y[n, row]) + meta.origin[1],
                    "heading": float(tracks.heading[n, row]),
                    "velocity_x": float(tracks.vx[n, row]),
                    "velocity_y": float(tracks.vy[n, row]),
                    "scenario_id": "small",
                    "city": "austin",
                    "focal_track_id": "103",
                }
            )
    if shuffle:  # rows of one track stay in the order of their first ones
        rows.sort(key=lambda row: (row["timestep"] > 2, row["timestep"]))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def places(points: np.ndarray) -> list[dict[str, float]]:
    return [dict(zip("xyz", (round(float(value), 3) for value in point), strict=True)) for point in points]


def document(scene: Scene) -> dict[str, Any]:
    """The map: lanes 3.7 m wide whose centre lines lie at height 0, two drivable areas that meet at x = 50, one
    crossing; lane 14 comes the other way, and both directions call each other neighbours."""
    lanes: dict[str, Any] = {}
    ids = scene.road.source_id[scene.road.lane_element]
    shapes = [(int(ids[n]), world_points(scene, n)) for n in range(scene.road.lane_count)]
    shapes.append((14, shapes[0][1][::-1] + np.array([0.0, 3.7, 0.0])))
    for n, (identity, points) in enumerate(shapes):
        along = (points[-1] - points[0])[:2]
        aside = 1.85 * np.array([-along[1], along[0], 0.0]) / np.hypot(*along)
        known = n < scene.road.lane_count
        lanes[str(identity)] = {
            "id": identity,
            "lane_type": "VEHICLE",
            "is_intersection": identity in (12, 13),
            "centerline": places(points * (1.0, 1.0, 0.0)),
            "left_lane_boundary": places(points + aside),
            "right_lane_boundary": places(points - aside),
            "left_lane_mark_type": "DOUBLE_SOLID_YELLOW" if identity in (11, 14) else "NONE",
            "right_lane_mark_type": "SOLID_WHITE" if identity == 11 else "NONE",
            "left_neighbor_id": {11: 14, 14: 11}.get(identity),
            "right_neighbor_id": None,
            "predecessors": ids[scene.road.entries(n)].tolist() if known else [],
            "successors": [*(ids[scene.road.exits(n)].tolist() if known else []), *([99] if identity == 12 else [])],
        }

    def box(x0: float, x1: float) -> list[dict[str, float]]:
        return places(np.array([(x0, -3, 7), (x1, -3, 7), (x1, 20, 7), (x0, 20, 7)], float))

    areas = {"1": {"id": 1, "area_boundary": box(0, 50)}, "2": {"id": 2, "area_boundary": box(50, 100)}}
    crossing = {
        "id": 23,
        "edge1": places(np.array([(40, -2, 7), (40, 2, 7)])),
        "edge2": places(np.array([(44, 2, 7), (44, -2, 7)])),
    }
    return {"lane_segments": lanes, "drivable_areas": areas, "pedestrian_crossings": {"23": crossing}}


def map_json(scene: Scene) -> bytes:
    return json.dumps(document(scene)).encode()
