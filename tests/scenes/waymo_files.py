"""A writer of Waymo motion scenarios for the tests: protocol buffers field by field, in any order, packed or not."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence

import numpy as np
from small_world import world_points

from skidpad.scenes.scene import SIGNAL_LIGHT, SIGNAL_STOP, Scene

Parts = list[bytes]


def naive_crc32c(data: bytes) -> int:
    """Bit by bit, from the polynomial."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = state >> 1 ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def naive_mask(crc: int) -> int:
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) % (1 << 32)


def tfrecord(*records: bytes) -> bytes:
    """A TFRecord file."""
    found = b""
    for record in records:
        head = struct.pack("<Q", len(record))
        found += head + struct.pack("<I", naive_mask(naive_crc32c(head)))
        found += record + struct.pack("<I", naive_mask(naive_crc32c(record)))
    return found


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    found = b""
    while value >= 0x80:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def single(number: int, value: float) -> bytes:
    return varint(number << 3 | 5) + struct.pack("<f", value)


def message(number: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return varint(number << 3 | 2) + varint(len(body)) + body


class WaymoWriter:
    """Writes scenes.

    shuffle  puts the fields of every message in an order of its own; repeated fields keep theirs among themselves
    packed   writes repeated numbers as runs
    extra    adds fields that no schema has to every message
    """

    def __init__(self, *, shuffle: int | None = None, packed: bool = False, extra: bool = False) -> None:
        self._random = None if shuffle is None else random.Random(shuffle)
        self._packed = packed
        self._extra = [integer(900, 7)] if extra else []

    def _mixed(self, *groups: Parts) -> bytes:
        """One message of groups of fields; within a group the order stays."""
        left = [list(group) for group in (*groups, self._extra) if group]
        if self._random is None:
            return b"".join(part for group in left for part in group)
        found = b""
        while left:
            group = self._random.choice(left)
            found += group.pop(0)
            left = [group for group in left if group]
        return found

    def _numbers(self, number: int, values: Sequence[int]) -> Parts:
        if self._packed and values:
            return [message(number, *(varint(value) for value in values))]
        return [integer(number, value) for value in values]

    def _points(self, number: int, points: np.ndarray) -> Parts:
        return [
            message(number, self._mixed([double(1, x)], [double(2, y)], [double(3, z)])) for x, y, z in points.tolist()
        ]

    def _track(self, scene: Scene, n: int) -> bytes:
        tracks, shift = scene.tracks, scene.meta.origin
        states = []
        for row in range(scene.meta.steps):
            if not tracks.valid[n, row]:
                states.append(message(3, self._mixed([integer(11, 0)])))
                continue
            place = [double(2 + i, float(getattr(tracks, "xyz"[i])[n, row]) + shift[i]) for i in range(3)]
            names = ("length", "width", "height", "heading", "vx", "vy")
            rest = [single(5 + i, float(getattr(tracks, name)[n, row])) for i, name in enumerate(names)]
            states.append(message(3, self._mixed(*([one] for one in place + rest), [integer(11, 1)])))
        return self._mixed([integer(1, int(tracks.source_id[n]))], [integer(2, int(tracks.type[n]))], states)

    def _feature(self, scene: Scene, element: int) -> bytes:
        road = scene.road
        kind, identity = int(road.element_type[element]), [integer(1, int(road.source_id[element]))]
        points = world_points(scene, element)
        if kind >= 30:
            return self._mixed(identity, [message({31: 8, 32: 9, 33: 10}[kind], self._mixed(self._points(1, points)))])
        if kind >= 10:
            number, code = (4, kind - 10) if kind < 20 else (5, kind - 20)
            return self._mixed(identity, [message(number, self._mixed([integer(1, code)], self._points(2, points)))])
        ids = road.source_id[road.lane_element]
        body = self._mixed(
            [double(1, float(np.nan_to_num(road.speed_limit[element])) / 0.44704)],
            [integer(2, kind)],
            self._points(8, points),
            self._numbers(9, ids[road.entries(element)].tolist()),
            self._numbers(10, ids[road.exits(element)].tolist()),
        )
        return self._mixed(identity, [message(3, body)])

    def record(self, scene: Scene) -> bytes:
        """The bytes of one Scenario; the first lanes of a scene are its first elements."""
        meta, signals, road = scene.meta, scene.signals, scene.road
        ids = road.source_id[road.lane_element]
        times = [3.0 + row * meta.dt + (0.0004 if row % 2 else 0.0) for row in range(meta.steps)]
        if self._packed:
            clock = [message(1, *(struct.pack("<d", time) for time in times))]
        else:
            clock = [double(1, time) for time in times]
        features = [message(8, self._feature(scene, element)) for element in range(road.element_count)]
        lights = np.flatnonzero(signals.kind == SIGNAL_LIGHT)
        for n in np.flatnonzero(signals.kind == SIGNAL_STOP):
            middle = signals.line[n].mean(axis=0).astype(float) + meta.origin
            lanes = ids[signals.lane[signals.lane_offset[n] : signals.lane_offset[n + 1]]].tolist()
            sign = self._mixed(self._numbers(1, lanes), self._points(2, middle[None]))
            features.append(message(8, self._mixed([integer(1, 900 + int(n))], [message(7, sign)])))
        states = []
        for row in range(meta.steps):
            seen = []
            for n in lights:
                code = {1: 4, 2: 2, 3: 6}[int(signals.state[n, row])]
                middle = signals.line[n].mean(axis=0).astype(float) + meta.origin
                lane = int(ids[signals.lane[signals.lane_offset[n]]])
                seen.append(
                    message(1, self._mixed([integer(1, lane)], [integer(2, code)], self._points(3, middle[None])))
                )
            states.append(message(7, self._mixed(seen)))
        predict = [
            message(11, self._mixed([integer(1, track)], [integer(2, n + 1)]))
            for n, track in enumerate(meta.tracks_to_predict)
        ]
        interest = scene.tracks.source_id[list(meta.objects_of_interest)].tolist()
        return self._mixed(
            clock,
            [message(2, self._track(scene, n)) for n in range(scene.tracks.count)],
            self._numbers(4, interest),
            [message(5, meta.scene_id.encode())],
            [integer(6, meta.sdc)],
            states,
            features,
            [integer(10, meta.current_step)],
            predict,
        )


def waymo_file(scene: Scene) -> bytes:
    """A TFRecord file of one scenario."""
    return tfrecord(WaymoWriter().record(scene))
