"""A scene as a PufferDrive `.bin` file of its latest layout, F2b (R20), for users who move back.

Everything is written in the local frame of the scene, since float32 could not hold a place in a city; the origin is
lost, and counted. The recording vehicle becomes agent 0, as its simulator wants it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from skidpad.scenes.formats.pufferdrive_layouts import (
    DATASET_BYTES,
    PHASE_TAG,
    ROW_COLUMNS,
    SCENARIO_BYTES,
    WIDTH_TAG,
)
from skidpad.scenes.lanes import LaneDistances
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import LINE_UNKNOWN, SIGNAL_LIGHT, SUBTYPE_NONE, SUBTYPE_STATIC, LossEntry, Scene

SUFFIX = ".bin"
# Distances between lanes are a table of all pairs: beyond this it is left out, which the format allows.
_MOST_GRAPH_LANES = 4096
_UNREACHABLE = -1.0


def pufferdrive_bytes(scene: Scene) -> tuple[bytes, Mapping[str, LossEntry]]:
    """The file of a scene, and what it cannot hold."""
    loss = LossReport()
    tracks, road, signals = scene.tracks, scene.road, scene.signals
    is_static = tracks.subtype == SUBTYPE_STATIC
    agents = [track for track in range(tracks.count) if not is_static[track]]
    if scene.meta.sdc in agents:
        agents.remove(scene.meta.sdc)
        agents.insert(0, scene.meta.sdc)
    objects = np.flatnonzero(is_static).tolist()
    parts = [_ints(len(agents), road.element_count, signals.count, len(objects))]
    parts += [_agent(scene, number, track, loss) for number, track in enumerate(agents)]
    parts += [_road(scene, element) for element in range(road.element_count)]
    parts += [_signal(scene, signal) for signal in range(signals.count)]
    for number, track in enumerate(objects):
        parts.append(_ints(number, int(tracks.type[track]), scene.meta.steps) + _rows(scene, track))
    parts.append(_lane_graph(scene, loss))
    for text, size, what in ((scene.meta.scene_id, SCENARIO_BYTES, "id"), (scene.meta.dataset, DATASET_BYTES, "set")):
        parts.append(_text(text, size, what, loss))
    parts.append(_ints(scene.meta.steps) + _floats([scene.meta.dt]))
    number_of = {track: number for number, track in enumerate(agents)}
    for chosen, what in (
        (scene.meta.objects_of_interest, "object_of_interest"),
        (scene.meta.tracks_to_predict, "track_to_predict"),
    ):
        kept = [number_of[track] for track in chosen if track in number_of]
        loss.count(f"dropped_{what}", "static objects cannot be chosen", len(chosen) - len(kept))
        parts.append(_ints(len(kept), *kept))
    pairs = np.stack([signals.junction, signals.phase], axis=1)
    parts.append(PHASE_TAG + pairs.astype("<i4").tobytes())
    parts.append(WIDTH_TAG + b"".join(_floats(road.width[road.points(int(e))]) for e in sorted(road.lane_element)))
    _count_lost(scene, loss)
    return b"".join(parts), loss.entries()


def _count_lost(scene: Scene, loss: LossReport) -> None:
    meta, tracks, road = scene.meta, scene.tracks, scene.road
    loss.count("dropped_origin", f"({', '.join(f'{value:g}' for value in meta.origin)}) m", any(meta.origin))
    is_flat = meta.has_z and meta.origin[2] != 0.0 and not road.xyz[:, 2].any()
    loss.count("dropped_height", "the map is at one height, which is the origin's", int(is_flat))
    loss.count("dropped_start_row", f"row {meta.current_step}", meta.current_step > 0)
    loss.count("dropped_neighbours", "lanes beside each other", len(road.left_lane))
    loss.count("dropped_junction_of_lane", "groups of lanes", int((road.lane_junction >= 0).sum()))
    loss.count("dropped_programme", "phases of lights", len(scene.signals.program_state))
    loss.count("dropped_subtype", "truck, bus and the like", int((tracks.subtype > SUBTYPE_NONE + 1).sum()))
    loss.count("dropped_licence", f"{meta.licence} {meta.attribution}", bool(meta.licence or meta.attribution))


def _agent(scene: Scene, number: int, track: int, loss: LossReport) -> bytes:
    tracks = scene.tracks
    route = scene.road.lane_element[tracks.route(track)].tolist()
    driven = int(tracks.route_gt_lanes[track])
    is_ego = track == scene.meta.sdc
    if number == 0 and route and not is_ego:
        loss.count("dropped_route", f"track {track}: with a route agent 0 would be the recording vehicle")
        route, driven = [], 0
    if is_ego and not route:
        route = [-1]
    return b"".join(
        [
            _ints(number, int(tracks.type[track]), scene.meta.steps),
            _rows(scene, track),
            _ints(len(route), *route, driven),
            _floats(tracks.goal[track]),
            _ints(int(tracks.expert[track])),
        ]
    )


def _rows(scene: Scene, track: int) -> bytes:
    columns = [_floats(getattr(scene.tracks, name)[track]) for name in ROW_COLUMNS]
    columns.append(scene.tracks.valid[track].astype("<i4").tobytes())
    return b"".join(columns)


def _road(scene: Scene, element: int) -> bytes:
    road = scene.road
    rows, kind = road.points(element), int(road.element_type[element])
    direction = road.direction[rows].astype(float)
    columns = [*road.xyz[rows].T, np.arctan2(direction[:, 1], direction[:, 0])]
    parts = [_ints(element, kind, len(direction)), *(_floats(column) for column in columns)]
    if kind < LINE_UNKNOWN:
        lane = int(np.flatnonzero(road.lane_element == element)[0])
        for others in (road.entries(lane), road.exits(lane)):
            parts.append(_ints(len(others), *road.lane_element[others].tolist()))
        limit = float(road.speed_limit[lane])
        parts.append(_floats([limit if np.isfinite(limit) else -1.0, road.arc[rows][-1], *road.arc[rows]]))
    return b"".join(parts)


def _signal(scene: Scene, signal: int) -> bytes:
    signals = scene.signals
    lanes = signals.lane[signals.lane_offset[signal] : signals.lane_offset[signal + 1]]
    states = signals.state[signal].tolist() if signals.kind[signal] == SIGNAL_LIGHT else []
    return b"".join(
        [
            _ints(signal, int(signals.kind[signal])),
            _floats(signals.line[signal].reshape(-1)),
            _floats([signals.heading[signal]]),
            _ints(len(states), *states),
            _ints(len(lanes), *scene.road.lane_element[lanes].tolist()),
        ]
    )


def _lane_graph(scene: Scene, loss: LossReport) -> bytes:
    road = scene.road
    if road.lane_count > _MOST_GRAPH_LANES:
        loss.count("dropped_lane_distances", f"{road.lane_count} lanes, at most {_MOST_GRAPH_LANES} are written")
        return _ints(0)
    distances = LaneDistances(road)
    to_goal = [distances.to(lane) for lane in range(road.lane_count)]
    table = np.array(to_goal, np.float32).reshape(road.lane_count, -1).T
    ids = road.lane_element.astype("<i4").tobytes()
    return _ints(road.lane_count) + ids + _floats(np.where(np.isfinite(table), table, _UNREACHABLE).reshape(-1))


def _text(text: str, size: int, what: str, loss: LossReport) -> bytes:
    data = text.replace("\0", " ").encode()
    cut = data[: size - 1].decode("utf-8", "ignore").encode()
    loss.count(f"dropped_end_of_scene_{what}", text, len(cut) < len(data))
    return cut.ljust(size, b"\0")


def _ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def _floats(values: ArrayLike | Sequence[float]) -> bytes:
    return np.ascontiguousarray(values, "<f4").tobytes()
