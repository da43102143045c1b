"""Writers of PufferDrive `.bin` files for the tests, one number at a time from the table of layouts (R20)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from small_world import world_points

from skidpad.scenes.scene import SIGNAL_STOP, Scene

OLD = {"F0": (False, False), "F0i": (False, True), "F1": (True, True)}


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def _old_kind(kind: int) -> int:
    return 4 if kind < 10 else 5 if kind < 20 else 6 if kind < 30 else {31: 8, 32: 9, 33: 10}[kind]


def old_bin(scene: Scene, layout: str) -> bytes:
    """F0, F0 with ids, or F1; absent rows stand at -10000."""
    has_head, has_id = OLD[layout]
    tracks, meta, signals = scene.tracks, scene.meta, scene.signals
    signs = [signals.line[n].mean(axis=0) + meta.origin for n in np.flatnonzero(signals.kind == SIGNAL_STOP)]
    data = ints(meta.sdc, len(meta.tracks_to_predict), *meta.tracks_to_predict) if has_head else b""
    data += ints(tracks.count, scene.road.element_count + len(signs))

    def head(kind: int, identity: int, rows: int) -> bytes:
        return ints(*([7] if has_head else []), kind, *([identity] if has_id else []), rows)

    for n in range(tracks.count):
        valid = tracks.valid[n]
        data += head(int(tracks.type[n]), int(tracks.source_id[n]), meta.steps)
        for axis, shift in zip("xyz", meta.origin, strict=True):
            data += floats(*np.where(valid, getattr(tracks, axis)[n] + shift, -10000.0))
        data += floats(*tracks.vx[n], *tracks.vy[n], *np.zeros(meta.steps), *tracks.heading[n])
        data += ints(*valid.astype(int))
        data += floats(tracks.width[n].max(), tracks.length[n].max(), tracks.height[n].max())
        data += floats(*(tracks.goal[n] + meta.origin)) + ints(int(tracks.expert[n]))
    roads = [
        (_old_kind(int(kind)), int(scene.road.source_id[n]), world_points(scene, n))
        for n, kind in enumerate(scene.road.element_type)
    ]
    for kind, identity, points in roads + [(7, 900 + n, sign[None]) for n, sign in enumerate(signs)]:
        data += head(kind, identity, len(points)) + floats(*points.T.reshape(-1))
        data += floats(*np.zeros(6)) + ints(0)
    return data


def new_bin(scene: Scene, *, static: bool = False) -> bytes:
    """F2 without its additions; distances between lanes are nonsense on purpose."""
    tracks, road, signals, meta = scene.tracks, scene.road, scene.signals, scene.meta
    shift = np.array(meta.origin)
    data = ints(tracks.count, road.element_count, signals.count, int(static))

    def rows(n: int) -> bytes:
        columns = [getattr(tracks, axis)[n] + at for axis, at in zip("xyz", shift, strict=True)]
        columns += [getattr(tracks, name)[n] for name in ("heading", "vx", "vy", "length", "width", "height")]
        return b"".join(floats(*column) for column in columns) + ints(*tracks.valid[n].astype(int))

    for n in range(tracks.count):
        data += ints(n, int(tracks.type[n]), meta.steps) + rows(n)
        data += (ints(1, 0, 1) if n == meta.sdc else ints(0, 0)) + floats(*(tracks.goal[n] + shift))
        data += ints(int(tracks.expert[n]))
    for n in range(road.element_count):
        points = world_points(scene, n)
        data += ints(n, int(road.element_type[n]), len(points)) + floats(*points.T.reshape(-1), *np.zeros(len(points)))
        if n < road.lane_count:
            entries, exits = road.entries(n).tolist(), road.exits(n).tolist()
            data += ints(len(entries), *entries, len(exits), *exits) + floats(road.speed_limit[n], 1.0)
            data += floats(*np.zeros(len(points)))
    for n in range(signals.count):
        lanes = signals.lane[signals.lane_offset[n] : signals.lane_offset[n + 1]].tolist()
        states = signals.state[n].tolist()
        data += ints(n, int(signals.kind[n])) + floats(*(signals.line[n] + shift).reshape(-1), signals.heading[n])
        data += ints(len(states), *states, len(lanes), *lanes)
    if static:
        data += ints(5, 9, meta.steps) + rows(0)
    data += ints(2, 0, 1) + floats(np.nan, -1.0, 5.0, 1e30)
    data += meta.scene_id.encode().ljust(128, b"\0") + meta.dataset.encode().ljust(32, b"\0")
    data += ints(meta.steps) + floats(meta.dt)
    for chosen in (meta.objects_of_interest, meta.tracks_to_predict):
        data += ints(len(chosen), *chosen)
    return data


def with_tails(scene: Scene, data: bytes, *, order: tuple[str, ...] = ("TLPHASE1", "LANEWID1")) -> bytes:
    """F2b: the additions in some order."""
    lanes = scene.road.lane_points(scene.road.lane_count - 1).stop
    tails: dict[str, Any] = {
        "TLPHASE1": ints(*np.stack([scene.signals.junction, scene.signals.phase], axis=1).reshape(-1)),
        "LANEWID1": floats(*scene.road.width[:lanes]),
    }
    return data + b"".join(tag.encode() + tails[tag] for tag in order)


def pufferdrive_bin(scene: Scene, layout: str) -> bytes:
    """The file of a scene in one of the five layouts."""
    if layout in OLD:
        return old_bin(scene, layout)
    return with_tails(scene, new_bin(scene)) if layout == "F2b" else new_bin(scene)


LAYOUTS = (*OLD, "F2", "F2b")
