"""PufferDrive `.bin` files (R20): five layouts, of which a file says none.

`pufferdrive_layouts` finds the one that fits; this file makes a scene of it. Distances between lanes, arc lengths and
headings of segments are computed anew. The old layouts have no graph, no clock and no signals but stop signs without a
lane: they get them as GPUDrive JSON does. The recording vehicle of a new file is agent 0 where that has a route, as its
simulator has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from skidpad.scenes.build import SceneBuilder
from skidpad.scenes.formats import derive
from skidpad.scenes.formats.motion_codes import ABSENT_M, DT_US
from skidpad.scenes.formats.pufferdrive_layouts import (
    OLD_LANE,
    OLD_STOP_SIGN,
    ROW_COLUMNS,
    BinFile,
    BinRoad,
    BinTrack,
    parse,
    plausible,
)
from skidpad.scenes.formats.source import Limits, Source
from skidpad.scenes.formats.unnamed_lanes import add_stop_signs
from skidpad.scenes.loss import LossReport
from skidpad.scenes.scene import (
    AREA_CROSSWALK,
    AREA_UNKNOWN,
    EDGE_UNKNOWN,
    LANE_STREET,
    LINE_UNKNOWN,
    SIGNAL_LIGHT,
    STATE_UNKNOWN,
    SUBTYPE_CAR,
    SUBTYPE_NONE,
    SUBTYPE_STATIC,
    TYPE_UNKNOWN,
    TYPE_VEHICLE,
    Scene,
)

FORMAT = "pufferdrive"
OPTIONS: frozenset[str] = frozenset()

# Element types of the old road types 4, 5, 6; 8 to 10 are areas in the order of ours.
_OLD_TYPES = {OLD_LANE: LANE_STREET, 5: LINE_UNKNOWN, 6: EDGE_UNKNOWN, **{8 + n: AREA_CROSSWALK + n for n in range(3)}}


def sniff(head: bytes, name: str) -> float:
    """1 where the beginning of a file makes sense in some layout, number by number, else 0."""
    return 1.0 if plausible(head) else 0.0


def read(source: Source, limits: Limits, options: Mapping[str, Any]) -> Scene:
    """The scene of a file.

    Raises FormatError where no layout fits, or more than one, and above a limit.
    """
    file = parse(source.data, limits, source.name)
    loss = LossReport()
    dt_us = DT_US if file.dt is None else round(file.dt * 1e6)
    if file.dt is None:
        loss.count("assumed_time_step", f"{DT_US * 1e-6:g} s: layout {file.layout} has no clock")
    scene_id = file.scenario_id.strip() or source.stem
    builder = SceneBuilder(scene_id, file.dataset, FORMAT, file.layout, source.digest, dt_us, loss=loss, limits=limits)
    steps = max([1, *(len(track.valid) for track in file.tracks)])
    if not file.tracks:
        steps = max([1, *(len(signal.states) for signal in file.signals)])
    limits.check("track_rows", steps * max(1, len(file.tracks)), source.name)
    if file.log_length not in (None, steps):
        loss.count("ignored_log_length", f"{file.log_length} rows, the longest track has {steps}")
    _add_roads(file, builder)
    _add_signals(file, steps, builder)
    for track in file.tracks:
        _add_track(track, steps, builder)
    return builder.finish(
        has_z=any(bool(np.any(road.points[:, 2])) for road in file.roads),
        sdc=file.sdc,
        tracks_to_predict=file.predict,
        objects_of_interest=file.interest,
        labels={"layout": file.layout},
    )


def _add_roads(file: BinFile, builder: SceneBuilder) -> None:
    lanes: list[tuple[int, BinRoad]] = []
    signs = []
    for number, road in enumerate(file.roads):
        if not file.is_new and road.type == OLD_STOP_SIGN:
            signs.append((f"road {number}", road.points[0]))
            continue
        kind = road.type if file.is_new else _OLD_TYPES[road.type]
        if kind < LINE_UNKNOWN:
            limit = road.speed_limit if np.isfinite(road.speed_limit) and road.speed_limit > 0.0 else None
            builder.lane(number, road.points, kind=kind, source_id=road.id, speed_limit=limit, width=road.widths)
            lanes.append((number, road))
        elif kind < EDGE_UNKNOWN:
            builder.line(road.points, kind, road.id)
        elif kind < AREA_UNKNOWN:
            builder.edge(road.points, kind, road.id)
        else:
            builder.area(road.points, kind, road.id)
    keys, centres = [number for number, _ in lanes], [road.points for _, road in lanes]
    if not file.is_new:
        for one, other in derive.connections(centres):
            builder.connect(keys[one], keys[other])
        add_stop_signs(signs, centres, keys, builder)
    for number, road in lanes:
        for other in [] if road.exits is None else road.exits.tolist():
            builder.connect(number, other)
        for other in [] if road.entries is None else road.entries.tolist():
            builder.connect(other, number)


def _add_signals(file: BinFile, steps: int, builder: SceneBuilder) -> None:
    for number, signal in enumerate(file.signals):
        where = f"traffic control {number}"
        if signal.kind == 0:
            builder.loss.count("dropped_signal_without_kind", where)
            continue
        states = None
        if signal.kind == SIGNAL_LIGHT and len(signal.states):
            states = np.full(steps, STATE_UNKNOWN, np.uint8)
            known = signal.states[:steps]
            states[: len(known)] = known
            builder.loss.count("dropped_light_row", where, len(signal.states) - len(known))
        same = np.array_equal(signal.line[0], signal.line[1])
        builder.signal(
            signal.kind,
            signal.lanes.tolist(),
            line=None if same else signal.line,
            point=signal.line[0] if same else None,
            heading=signal.heading,
            junction=None if signal.junction < 0 else signal.junction,
            phase=signal.phase,
            states=states,
        )


def _add_track(track: BinTrack, steps: int, builder: SceneBuilder) -> None:
    padding = (0, steps - len(track.valid))
    valid = track.valid & (track.rows["x"] != ABSENT_M)
    gone = int((track.valid & ~valid).sum())
    builder.loss.count("repaired_absent_row", f"track {track.id}: {gone} rows at x = {ABSENT_M:g} m", gone)
    builder.loss.count("assumed_absent_rows", f"track {track.id}: {len(valid)} rows of {steps}", padding[1])
    columns = {name: np.pad(track.rows[name], padding) for name in ROW_COLUMNS}
    kind = TYPE_UNKNOWN if track.is_static else track.type
    subtype = SUBTYPE_STATIC if track.is_static else SUBTYPE_CAR if kind == TYPE_VEHICLE else SUBTYPE_NONE
    builder.track(
        # Numbers of agents and of static objects may be the same; of two tracks with one id the second would be lost.
        -1 if track.is_static else track.id,
        kind,
        subtype,
        valid=np.pad(valid, padding),
        goal=track.goal,
        expert=track.expert,
        **columns,
    )
